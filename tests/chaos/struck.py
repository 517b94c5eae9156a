"""A run of three CPU ranks one of which is struck: the fault as data, what came of it, and what was promised.

The fault lies in the user's own project: its step (and, for averagings, a wrapper around the group's own sum) does to
the process what the fault says when its time comes, and notes the moment. No code of flodl knows of it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from flodl import trainer
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import AveragingDone, Command, Event, Goodbye, RankDied, RankFailed, RunWindow
from flodl.record.journal import read_journal
from flodl.spec.codec import load_spec
from tests.e2e import command as commands
from tests.engine.live import alive

__all__ = ["LIMITS", "Fault", "Story", "Struck", "struck"]

SCALE = 0.1
LIMITS = {"heartbeat": 1.0 * SCALE, "dead": 30.0 * SCALE, "step": 60.0 * SCALE}
LEFT_SECONDS = 5.0

PROJECT = """
import ctypes, os, signal, threading, time
from flodl.engine.groups import GroupAverager
from flodl.steps.classification import Classification

KIND, RANK, COUNT = os.environ["FAULT"].split(":")
SLOW = os.environ["SLOW"]  # rank:from:to:factor of steps
me = {"rank": None}

def strike(kind):
    with open(f"struck.{me['rank']}", "w") as note:
        note.write(repr(time.monotonic()))
    match kind:
        case "raise":
            raise ValueError("a label of 12 in ten classes")
        case "abort":
            os.abort()
        case "segv":
            ctypes.string_at(0)
        case "exit0":
            os._exit(0)
        case "hang":
            time.sleep(10**6)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)

def is_mine():
    return str(me["rank"]) in RANK.split(",")

begin, combine = GroupAverager.__init__, GroupAverager.combine

def begin_known(self, rank, *given):
    me["rank"] = rank
    begin(self, rank, *given)

def combine_struck(self, generation, number, vectors):
    mine = is_mine() and number == int(COUNT)
    if mine and KIND == "first":
        strike("kill")
    if mine and KIND == "middle":
        threading.Timer(0.002, strike, ["kill"]).start()
    combine(self, generation, number, vectors)
    if mine and KIND in ("middle", "last"):
        strike("kill")

GroupAverager.__init__, GroupAverager.combine = begin_known, combine_struck

class Step(Classification):
    steps = 0
    def __call__(self, model, batch):
        self.steps += 1
        rank, first, last, factor = SLOW.split(":")
        slow = str(me["rank"]) == rank and int(first) <= self.steps < int(last)
        time.sleep(0.02 * (float(factor) if slow else 1.0))
        if is_mine() and self.steps == int(COUNT) and KIND not in ("first", "middle", "last"):
            strike(KIND)
        return super().__call__(model, batch)
"""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """kind: raise | abort | segv | exit0 | hang | kill | stop, in a step; first | middle | last, killed in that part of
    an averaging; none. ranks: who is struck. count: at which of its steps, or at which round."""

    kind: str = "none"
    ranks: tuple[int, ...] = (1,)
    count: int = 45


class Story:
    """What a run's journal tells."""

    def __init__(self, folder: Path) -> None:
        header, told = read_journal(folder / "journal.jsonl")
        job = trainer.resolved(load_spec(folder / "spec.json"), header.roster)
        self.told: list[tuple[Event, tuple[Command, ...]]] = told
        coordinator = Coordinator(job, header.roster)
        for event, said in told:
            assert coordinator.handle(event) == said, "the journal replays"
            assert coordinator.audit() == (0, 0), "LOST and DUP"

    @property
    def deaths(self) -> list[RankDied]:
        return [event for event, _ in self.told if isinstance(event, RankDied)]

    @property
    def failures(self) -> list[RankFailed]:
        return [event for event, _ in self.told if isinstance(event, RankFailed)]

    def accepted(self) -> list[float]:
        """When each round was accepted."""
        return [
            event.at
            for event, said in self.told
            if isinstance(event, AveragingDone) and any(isinstance(command, RunWindow) for command in said)
        ]

    def window_seconds(self, before: float) -> float:
        """The longest of the windows that ended before that moment, the first one left out."""
        ends = [at for at in self.accepted() if at < before][1:]
        return max(later - earlier for earlier, later in itertools.pairwise(ends))

    def next_accepted(self, after: float) -> float:
        return min(at for at in self.accepted() if at > after) - after

    def figures(self) -> dict[int, dict[str, float]]:
        """What each rank that left in order has evaluated at the end, to the last bit."""
        return {
            event.rank: result.values
            for event, _ in self.told
            if isinstance(event, Goodbye)
            for result in event.callbacks
            if result.name == "eval"
        }


class Struck:
    """The command, and the moments at which ranks were struck."""

    def __init__(self, run: commands.Command) -> None:
        self.command = run

    def struck_at(self, rank: int) -> float:
        return float((self.command.folder / f"struck.{rank}").read_text())

    def end(self, seconds: float = 90.0) -> int:
        """Its exit code; nothing that it started is left."""
        self.command.until(lambda: "all 3 ranks are ready" in self.command.output)
        self.command.family = commands.children(self.command.process.pid)
        code = self.command.end(seconds)
        end = time.monotonic() + LEFT_SECONDS
        while left := [pid for pid in self.command.family if alive(pid)]:
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.05)
        return code

    @property
    def story(self) -> Story:
        return Story(self.command.folder / "run")


@contextmanager
def struck(
    folder: Path, fault: Fault, *more: str, slow: str = "9:0:0:1", mode: str = "cpu_cadence"
) -> Iterator[Struck]:
    """Three ranks, 20 ms a batch, windows of at most ten batches of the slowest, limits at a tenth."""
    (folder / "struck_project.py").write_text(PROJECT)
    told = f"{fault.kind}:{','.join(map(str, fault.ranks))}:{fault.count}"
    env = f"{{FAULT: '{told}', SLOW: '{slow}'}}"
    job: Sequence[str] = (
        f"cluster.workers=[{{host: localhost, local_devices: 'cpu:3', nccl_socket_ifname: lo, env: {env}}}]",
        f"elche={mode}",
        "model=mlp",
        "step._target_=struck_project.Step",
        "trainer.batch_size=16",
        "trainer.num_epochs=6",
        "eval.every_epochs=null",
        "debug.eval_everywhere=true",
        f"membership.timeout_scale={SCALE}",
        "hydra.run.dir=run",
    )
    with commands.command(folder, *job, *more) as run:
        yield Struck(run)
