"""The doors between judgement and the world. Each has a second implementation that needs no hardware.

`World`     where ranks live: the live one (engine), virtual time (sim).
`Fleet`     agents on hosts, kept from one run to the next: this machine (engine), SSH (flodl_launch).
`FanOut`    how processes get onto hosts: this machine (engine), SSH (flodl_launch).
`Execute`   one command on one host, without an agent: this machine (tasks), SSH (flodl_launch).
`Deploy`    files onto hosts before a run: rsync over SSH (flodl_launch).
`UploadSink`  where the bytes of an upload go: a file, a member of a bundle (record), memory (tests).
`Averager`  how replicas are combined: a process group (engine), one process that holds them all (tests).
`Logger`    who hears of figures beside the run folder: a service per file (loggers), the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any, Protocol

import msgspec

from flodl.decide.messages import Command, Event
from flodl.errors import HostUnready
from flodl.spec.cluster import ClusterSpec, HostSpec

__all__ = [
    "AbandonedError",
    "Averager",
    "Deploy",
    "Errand",
    "Execute",
    "FanOut",
    "Fleet",
    "Greeting",
    "HostCall",
    "HostLaunch",
    "HostNotice",
    "LoggedArm",
    "LoggedRun",
    "LoggedSweep",
    "Logger",
    "PushProgress",
    "UploadSink",
    "World",
]


class World(Protocol):
    """Where ranks live."""

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        """The next event, stamped with this world's clock; None when none came in time.

        deadline: where no event comes before this moment of the clock, `TimeReached` is one.
        """
        ...

    def execute(self, command: Command) -> None:
        """Carry an order out. Returns at once; what comes of it comes as events."""
        ...

    def close(self) -> None:
        """End everything that this world started. Idempotent; bounded in time."""
        ...


class HostLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """What one host's agent is told to start.

    label: the host's name in the cluster. path: working folder, first on sys.path ("" : here). env: variables of every
    rank of this host. ranks, devices: global numbers and device names ("cuda:0", "cpu"), same length. preload: modules
    that are loaded once, before ranks are forked. secret: what goes over standard input only (spec, keys, env_pass
    values). beat_seconds: how often its agent is told that the controller lives (0: never); dead_seconds: silence after
    which the agent ends the ranks and itself.
    """

    label: str
    path: str = ""
    env: dict[str, str] = {}
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    preload: tuple[str, ...] = ("flodl.engine.worker",)
    secret: bytes = b""
    beat_seconds: float = 0.0
    dead_seconds: float = 0.0


class HostNotice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a host's agent says.

    kind: started | line (a rank's output) | exit | gone (the agent itself ended) | silent (it has not been heard for
    the dead limit). rank: -1 where it concerns the host. text: line or cause. code: exit code, negative for a signal.
    incarnation: which process of the rank it was.
    """

    host: str
    kind: str
    rank: int = -1
    text: str = ""
    code: int = 0
    incarnation: int = 0


class FanOut(Protocol):
    """How processes get onto hosts."""

    def start(self, hosts: Sequence[HostLaunch]) -> None:
        """Start one process per device, on hosts that were met. All or nothing: raises NotReady."""
        ...

    def restart(self, rank: int, incarnation: int, secret: bytes) -> None:
        """Start another process for a rank, once its earlier one has ended. secret: as in `HostLaunch`."""
        ...

    def poll(self, timeout_seconds: float) -> tuple[HostNotice, ...]:
        """What the agents said since the last call."""
        ...

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one rank's process group; a rank that is gone is no error."""
        ...

    def close(self, grace_seconds: float) -> None:
        """End every rank: TERM, then KILL after the grace. Idempotent."""
        ...


class HostCall(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to reach one host and to have an agent there.

    spec: its entry in the cluster file. python: absolute interpreter ("": this one, on this machine only). path:
    working folder of its ranks. env: variables of its ranks. withheld: variables that no agent inherits (env_pass).
    preload: modules that its ranks need, which are loaded while everything else goes on.
    here: it is this machine, no SSH.
    """

    spec: HostSpec
    here: bool = False
    python: str = ""
    path: str = ""
    env: dict[str, str] = {}
    withheld: frozenset[str] = frozenset()
    preload: tuple[str, ...] = ("flodl.engine.worker",)

    @property
    def label(self) -> str:
        return self.spec.host


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """A host's agent has answered. facts: see `flodl.engine.facts.host_facts`. latency_ms: one round trip to it.

    torch: what its warm process has loaded (`flodl.engine.facts.torch_facts`); empty while it still loads: meet again.
    noise: what the host's login wrote before the agent began.
    """

    host: str
    facts: dict[str, Any]
    latency_ms: float = 0.0
    torch: dict[str, str] = {}
    noise: tuple[str, ...] = ()


class Errand(Protocol):
    """A small program (a module under flodl.probe) that runs on a host without torch; it speaks in lines."""

    def line(self, timeout_seconds: float) -> str | None:
        """Its next line of output; None when none came in time, or when it has ended and all was read."""
        ...

    def give(self, line: str) -> None:
        """One more line to its standard input."""
        ...

    def end(self) -> int | None:
        """Close its input, end it if need be; its exit code, None where that is not known."""
        ...

    def errors(self) -> tuple[str, ...]:
        """The last lines that it wrote to its standard error; none before it has ended."""
        ...


class Fleet(Protocol):
    """Agents on hosts. They outlive a run where the fleet does."""

    def meet(self, calls: Sequence[HostCall]) -> dict[str, Greeting | HostUnready]:
        """Have one agent on each host, in parallel. Whom it has met already under an equal call is not called again."""
        ...

    def run(self, host: str, module: str, given: str = "") -> Errand:
        """Start a program on a host that was met; given: the first line of its input. Raises HostUnready."""
        ...

    def fan_out(self) -> FanOut:
        """Where one run starts its ranks, on hosts that were met. Closing it ends the ranks, and the agents stay."""
        ...

    def close(self, grace_seconds: float) -> None:
        """End every agent and what runs under it. Idempotent."""
        ...


class Execute(Protocol):
    """One command on one host, for tasks that prepare hosts: no agent, no flodl and no torch is needed there.

    Named by import path in `launch.execute`. May be called from several threads at once.
    """

    def __call__(
        self,
        call: HostCall,
        argv: Sequence[str],
        *,
        given: bytes = b"",
        on_line: Callable[[str], None],
        timeout_seconds: float | None = None,
        stop: Flag | None = None,
    ) -> int:
        """Run `argv` there, every word of it as it is; its exit code (negative or 128 + n: signal n).

        given: its whole standard input, so nothing secret stands in argv. on_line: each line of output and errors, as
        it comes, without its newline, invalid UTF-8 replaced. The working folder is the user's home where call.path
        is "" or missing, else call.path. Raises HostUnready where the host cannot be reached, kind `timeout` where
        the command takes longer than timeout_seconds (it is ended then). stop: once it is set, the command is ended
        there and HostUnready is raised, within a few seconds.
        """
        ...


class PushProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a push is. what: code | data. rate: of the line, with its unit. left_seconds: an estimate."""

    host: str
    what: str
    sent_bytes: int
    percent: int
    rate: str
    left_seconds: int


class Deploy(Protocol):
    """The working tree and the data set onto hosts. Named by import path in `launch.deploy`."""

    def __call__(
        self,
        cluster: ClusterSpec,
        calls: Sequence[HostCall],
        project: Path,
        on_progress: Callable[[PushProgress], None],
    ) -> tuple[HostUnready, ...]:
        """Push what cluster.deploy names to each host: `project` to call.path, controller.data_path to data_path.

        on_progress: called from several threads. The troubles of all hosts are returned together; raises ConfigError
        where controller.data_path is no folder.
        """
        ...


class UploadSink(Protocol):
    """Where one upload goes."""

    def write(self, data: memoryview) -> object:
        """More bytes. Raises OSError."""
        ...

    def commit(self, sha256: str) -> None:
        """All are there, with this digest: make it durable and visible. Raises OSError."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


class AbandonedError(Exception):
    """An averaging belongs to a generation that is no longer current: its result does not count."""


class Averager(Protocol):
    """How replicas are combined. Vectors are flat, contiguous, of one length on all members.

    A contribution carries its own mass: vectors hold mass x values, the mass itself rides along as an element. So one
    plain sum is all that members need from each other, and a rank that is left out sends zeros without asking.
    """

    def form(self, generation: int, ranks: Sequence[int]) -> None:
        """Join a generation, in this order of ranks. What is under way in an older one ends in `AbandonedError`."""
        ...

    def combine(self, generation: int, round_number: int, vectors: Sequence[Any]) -> None:
        """Everybody's vectors become the members' sum, in place. `AbandonedError` once `generation` has passed."""
        ...

    def launch(self, generation: int, round_number: int, vectors: Sequence[Any]) -> Callable[[], None]:
        """Begin a `combine`. What the present stream of a GPU is told from here on finds the sum; on a CPU it is there.

        The call that is handed back waits for the end: only where it returns is the sum one of all members; else it
        raises `AbandonedError` or RuntimeError, and whatever was computed of the vectors is void. Where the launch
        itself raises, the sum has failed or was never begun; others may be reading the vectors all the same.
        """
        ...

    def broadcast(self, generation: int, source: int, vectors: Sequence[Any]) -> None:
        """Everybody's vectors become those of rank `source`, in place."""
        ...

    def close(self) -> None:
        """Leave the group. Never blocks on a peer."""
        ...


class LoggedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is, for a logger. folder: absolute. sweep: the folder of its sweep, "" : none. parameters: every
    leaf of its job by dotted key, such as optim.lr; plain values and texts."""

    name: str
    run_id: str
    folder: str
    sweep: str = ""
    parameters: dict[str, str | int | float | bool | None] = {}


class LoggedArm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of a sweep. folder: of its run, absolute, "" where it has none. figures: of its result."""

    name: str
    overrides: tuple[str, ...]
    status: str
    folder: str = ""
    figures: dict[str, float] = {}


class LoggedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep that is over. folder: absolute. text: the comparison as Markdown."""

    name: str
    folder: str
    text: str
    arms: tuple[LoggedArm, ...]


class Logger(Protocol):
    """Who hears of a run's figures. Made from `logger.<name>` of the config; named by import path.

    One object hears of one run, `begin`, `log` ..., `end`, or of one sweep, `compare`. All calls come from one thread
    that is neither the run's nor another logger's; what they raise is told once, and the run goes on without it. An
    attribute `requires` names the packages without which it cannot work, `extra` the extra of flodl that holds them.
    """

    def begin(self, run: LoggedRun) -> None:
        """A run begins: open whatever is needed."""
        ...

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        """Figures by name. step: samples of the whole run so far. at: seconds since 1970."""
        ...

    def end(self, status: str, figures: Mapping[str, float]) -> None:
        """The run is over (`done`, `degraded`, `stopped`, `failed`, `interrupted`), with the figures of its result."""
        ...

    def compare(self, sweep: LoggedSweep) -> None:
        """A sweep is over."""
        ...
