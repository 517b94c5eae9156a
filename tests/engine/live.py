"""A job, a roster and a live world of tiny workers, for tests with real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from flodl.decide.messages import Event, RankReady
from flodl.decide.roster import Place
from flodl.decide.timeouts import Timeouts
from flodl.engine.fleet import AgentFleet
from flodl.engine.keys import RunKeys, make_keys
from flodl.engine.link import DIAL_SECONDS, Dialled, RankLink
from flodl.engine.payload import RankPayload, encode_host_secret
from flodl.engine.server import Listen
from flodl.engine.world import LiveWorld
from flodl.errors import HostUnready, NotReady
from flodl.ports import HostCall, HostLaunch
from flodl.spec.cluster import ClusterSpec, HostSpec, JoinSpec
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import JobSpec

ROOT = Path(__file__).resolve().parents[2]
RUN = "run-of-a-test"
GONE_SECONDS = 5.0  # for what was killed; how soon it really is gone is measured on the hosts of a lab

E = TypeVar("E")


def found_in(*folders: Path) -> str:
    """PYTHONPATH of a child: these folders, then what this process was given."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def job(num_ranks: int = 2) -> JobSpec:
    """Any legal job: the tiny workers do not read it."""
    part = Component(target="torch.nn.Identity")
    return JobSpec(
        elche=ElCheConfig(mode="cpu_cadence"),
        cluster=ClusterSpec(workers=(HostSpec(host="here", local_devices=f"cpu:{num_ranks}"),)),
        model=part,
        dataset=part,
        step=part,
        optim=part,
        scheduler=part,
    )


def places(num_ranks: int) -> tuple[Place, ...]:
    """All on one host."""
    return tuple(Place(rank=rank, host="here", device="cpu", batch_size=8) for rank in range(num_ranks))


def payloads(world: LiveWorld, keys: RunKeys, num_ranks: int, entry: str) -> dict[int, RankPayload]:
    """One per rank, dialling this world."""
    return {
        place.rank: RankPayload(
            run_id=RUN,
            job=job(num_ranks),
            rank=place.rank,
            world=places(num_ranks),
            host=place.host,
            device=place.device,
            local_rank=place.rank,
            control=world.endpoints.control,
            bulk=world.endpoints.bulk,
            server_key=keys.server.public,
            keys=keys.by_rank[place.rank],
            interface="lo",
            path=str(ROOT),
            entry=f"tests.engine.tiny_worker:{entry}",
        )
        for place in places(num_ranks)
    }


class Uploads:
    """Keeps what ranks upload, in memory."""

    def __init__(self) -> None:
        self.whole: dict[int, bytes] = {}

    def open(self, rank: int, name: str) -> Upload:
        return Upload(self, rank)


class Upload:
    """One sink."""

    def __init__(self, uploads: Uploads, rank: int) -> None:
        self._uploads, self._rank, self._data = uploads, rank, bytearray()

    def write(self, data: memoryview) -> None:
        self._data += data

    def commit(self, sha256: str) -> None:
        self._uploads.whole[self._rank] = bytes(self._data)

    def abandon(self) -> None:
        self._data.clear()


class Live:
    """A launched world and what it said."""

    def __init__(self, world: LiveWorld, keys: RunKeys, uploads: Uploads) -> None:
        self.world = world
        self.keys = keys
        self.uploads = uploads
        self.events: list[Event] = []
        self.lines: list[tuple[int, str]] = []
        self._agent = 0

    def until(self, kind: type[E], count: int = 1, *, seconds: float = 30.0) -> list[E]:
        """The first `count` events of this kind from now on."""
        found: list[E] = []
        end = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < end, f"no {kind.__name__} in {seconds} s, but {self.events}; {self.lines}"
            event = self.world.next_event(0.1)
            if event is not None:
                self.events.append(event)
                if isinstance(event, kind):
                    found.append(event)
        return found

    def ended(self, *, but: int = 0, seconds: float = 5.0) -> None:
        """Wait until all ranks (but so many) have ended and their last lines were read."""
        end = time.monotonic() + seconds
        while len(children(self.agent())) > 1 + but:
            assert time.monotonic() < end, f"still there: {children(self.agent())}"
            time.sleep(0.01)
        time.sleep(0.2)

    def agent(self) -> int:
        """The process number of the only agent."""
        return self._agent or self._find_agent()

    def _find_agent(self) -> int:
        (self._agent,) = agents_of(os.getpid())
        return self._agent

    def pids(self, num_ranks: int) -> dict[int, int]:
        """rank -> process number, once all are ready."""
        return {ready.rank: int(ready.versions["pid"]) for ready in self.until(RankReady, num_ranks)}


@contextmanager
def live(
    num_ranks: int,
    entry: str = "obedient",
    *,
    tell: Callable[[RankPayload], RankPayload] = lambda payload: payload,
    join_seconds: float = 60.0,
    min_ranks: int | None = None,
    fleet: AgentFleet | None = None,
    limits: Timeouts | None = None,
    **host: Any,
) -> Iterator[Live]:
    """`num_ranks` real processes on this machine that run tiny_worker.`entry`. host: further fields of HostCall.

    fleet: one that goes on living; else the agent ends with the run. limits: of silence, on both sides.
    """
    keys, uploads = make_keys(range(num_ranks)), Uploads()
    lines: list[tuple[int, str]] = []
    agents = AgentFleet() if fleet is None else fleet
    call = a_call(**host)
    met = agents.meet([call])["here"]
    if isinstance(met, HostUnready):
        raise met
    world = LiveWorld.open(
        places(num_ranks),
        agents.fan_out(),
        listen=Listen("127.0.0.1", 0, RUN, keys, limits or Timeouts()),
        open_upload=uploads.open,
        on_line=lambda rank, host, text: lines.append((rank, text)),
    )
    started = Live(world, keys, uploads)
    started.lines = lines
    try:
        told = {rank: tell(payload) for rank, payload in payloads(world, keys, num_ranks, entry).items()}
        launch = HostLaunch(
            label="here",
            ranks=tuple(range(num_ranks)),
            devices=("cpu",) * num_ranks,
            secret=encode_host_secret(told, {"A_TEST_SECRET": "hunter2-in-the-rank-only"}),
            path=call.path,
            env=call.env,
            preload=call.preload,
            beat_seconds=limits.heartbeat if limits is not None else 0.0,
            dead_seconds=limits.dead if limits is not None else 0.0,
        )
        world.launch([launch], JoinSpec(timeout_seconds=join_seconds, min_ranks=min_ranks))
        yield started
    finally:
        world.close()
        if fleet is None:
            agents.close(0.0)


def a_call(**fields: Any) -> HostCall:
    """This machine, for tiny workers."""
    return HostCall(spec=HostSpec(host="here"), **{"path": str(ROOT), "preload": (), "here": True} | fields)


def refusal(where: Dialled, words: str) -> str:
    """Why a dial is refused; on a busy machine the telling sign takes longer, and then it is tried with patience."""
    told = ""
    for seconds in (0.5, DIAL_SECONDS):
        try:
            RankLink.dial(where, timeout_seconds=seconds).close()
        except NotReady as error:
            told = str(error)
        if words in told:
            break
    return told


def alive(pid: int) -> bool:
    """True while a process of this number runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pids: list[int], seconds: float) -> float:
    """Seconds until none of them is alive; fails after `seconds`."""
    begun = time.monotonic()
    while any(alive(pid) for pid in pids):
        assert time.monotonic() - begun < seconds, f"alive after {seconds} s: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.01)
    return time.monotonic() - begun


def cmdline(pid: int) -> bytes:
    """The command line of a process, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def agents_of(pid: int) -> list[int]:
    """The agents that a process has started. Whatever an agent has just forked carries its command line for a moment,
    until it becomes a program of its own: of those only the uppermost is one."""
    return [child for child in _born().get(pid, []) if b"flodl.engine.agent" in cmdline(child)]


def warm_of(agent: int, seconds: float = 20.0) -> int:
    """The warm process of an agent that was told to have one: it is there as soon as the agent came to that."""
    end = time.monotonic() + seconds
    while not (found := [child for child in _born().get(agent, []) if b"flodl.engine.warm" in cmdline(child)]):
        assert time.monotonic() < end, f"agent {agent} has no warm process after {seconds} s"
        time.sleep(0.01)
    return max(found)  # an earlier one may be on its way out


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far, however busy the machine is."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Every living descendant of a process, from one look at all of them: a lab has hundreds."""
    born = _born()
    found = list(born.get(pid, []))
    for each in found:
        found += born.get(each, [])
    return found


def _born() -> dict[int, list[int]]:
    """Every process that has living children -> those."""
    born: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            born.setdefault(int(parent), []).append(int(entry.name))
    return born


__all__ = [
    "GONE_SECONDS",
    "ROOT",
    "RUN",
    "Live",
    "Uploads",
    "a_call",
    "agents_of",
    "alive",
    "children",
    "cmdline",
    "cpu_seconds",
    "job",
    "live",
    "payloads",
    "places",
    "refusal",
    "wait_gone",
    "warm_of",
]
