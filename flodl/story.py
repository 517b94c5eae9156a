"""What is gathered beside a run's coordinator: who the ranks are, when the first step came, what they wrote."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from flodl.caller import Caller
from flodl.decide.messages import Command, End, EpochEnded, Event, IntervalEnded, RankDied, RankReady, RunWindow
from flodl.decide.roster import Place
from flodl.decide.totals import RunTotals
from flodl.engine.signals import Stoppable
from flodl.errors import Interrupted, NotReady, RunFailed, RunLost
from flodl.probe.watching import GpuWatch
from flodl.record.folder import RunFolder
from flodl.record.result import Run
from flodl.record.text import clean, no_write
from flodl.record.versions import Versions, versions
from flodl.report.rig import hosts_of
from flodl.report.terminal import Terminal
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.job import JobSpec

__all__ = ["Story"]

WORTH_SEEING = re.compile(r"\b(warning|error|exception|traceback|critical|fatal)\b", re.IGNORECASE)
KEPT_SHOWN = 200


class Story:
    """One run's. caller: the program that asked for it. shown: where people read it, once there is such a place."""

    def __init__(self, folder: RunFolder, begun: float, caller: Caller | None = None) -> None:
        self.folder = folder
        self.caller = caller or Caller()
        self.shown: Terminal | None = None
        self.end: End | None = None  # how the run ended, once it has: no signal changes that any more
        self.is_late_signalled = False  # one came after that
        self.add_up: Callable[[], RunTotals] | None = None  # what was trained so far, once there is who counts it
        self._begun = begun
        self._run = Run(mode="auto", average="auto", world_size=0, run_id=folder.run_id)
        self._places: dict[int, Place] = {}
        self._checkpoint = CheckpointConfig()
        self._first_step_at: float | None = None
        self._rank_versions: dict[int, dict[str, str]] = {}
        self._lines: deque[tuple[str, str]] = deque(maxlen=KEPT_SHOWN)
        self._gpus: GpuWatch | None = None

    def meet(self, job: JobSpec, places: Sequence[Place]) -> None:
        """The roster is known."""
        self._places = {place.rank: place for place in places}
        self._checkpoint = job.checkpoint
        self._run = Run(
            name=job.name,
            run_id=self.folder.run_id,
            mode=job.elche.mode,
            average=job.elche.averages,
            world_size=len(places),
            hosts=hosts_of(places),
        )

    def watch(self, gpus: GpuWatch) -> None:
        """These GPUs are watched from now on."""
        self._gpus = gpus

    def line(self, rank: int, host: str, text: str) -> None:
        """A line of a rank (-1: of the host's own processes). Called in another thread: only the rank's log is written
        here, the terminal and the controller's log get it in `pass_on`."""
        place = self._places.get(rank)
        if place is None:
            self._lines.append((f"[{host}]", text))
            return
        log = self.folder.rank_log(host, rank, place.device)
        said = log.append(text)
        if WORTH_SEEING.search(said):
            self._lines.append((log.prefix, said))

    def say(self, text: str) -> None:
        """A line of the controller's own, for the log and for people."""
        with suppress(ValueError):  # (a run that is over has closed its log)
            self.folder.log.append(text)
        if self.shown is not None:
            self.shown.say(text)

    def pass_on(self) -> None:
        """Show what came in since the last call."""
        if self._gpus is not None:
            self._gpus.keep()
        while self._lines:
            prefix, text = self._lines.popleft()
            self.folder.log.append(f"{prefix} {text}")
            if self.shown is not None:
                self.shown.foreign(prefix, clean(text))

    def begin(self, shown: Terminal, world: Stoppable) -> None:
        """The run is shown here from now on, and can be stopped."""
        self.shown = shown
        self.caller.on_world(world)

    def count_strangers(self, number: int) -> None:
        """So many connections to the run's ports were nobody's of the run: told once, when it is over, after all else
        that came in."""
        self.pass_on()
        if number > 0 and self.shown is not None:
            told = f"warning: {number} connections to the controller's ports came from nobody of this run: refused"
            self.folder.log.append(told)
            self.shown.say(told)

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener: the ranks' versions, the moment of the first window, what GPUs did in an epoch."""
        if isinstance(event, RankReady):
            self._rank_versions[event.rank] = dict(event.versions)
        if self._first_step_at is None and any(isinstance(command, RunWindow) for command in commands):
            self._first_step_at = time.monotonic()
        for command in commands:
            if isinstance(command, EpochEnded | IntervalEnded) and self._gpus is not None:
                uses = self._gpus.taken()
                if uses:
                    self.folder.metrics.append_gpus(command.metrics.epoch, uses)

    def mourn(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener: a dead rank's last lines."""
        if isinstance(event, RankDied) and self.shown is not None:
            place = self._places[event.rank]
            log = self.folder.rank_log(place.host, place.rank, place.device)
            for text in tuple(log.tail):
                self.shown.foreign(log.prefix, text)

    def failure(self, error: Exception | KeyboardInterrupt) -> Exception:
        """The error as a person should be told it: a folder that cannot be written in is no bug of ours."""
        if isinstance(error, KeyboardInterrupt):
            began = self._first_step_at is not None
            return Interrupted(f"a signal {'while the run was ended' if began else 'before anything was started'}")
        if not isinstance(error, OSError) or not error.strerror:
            return error
        kind = NotReady if self._first_step_at is None else RunFailed if self._has_saved() else RunLost
        return kind(no_write(error, self.folder.path))

    def _has_saved(self) -> bool:
        """Whether there is something to go on from."""
        with suppress(OSError):
            return self.folder.bundles(self._checkpoint).newest() is not None
        return False

    def totals(self) -> RunTotals | None:
        """What a run came to that ended before it was ended: of an error in the middle of a sum that ends it, too."""
        with suppress(Exception):  # then no sum is known, and the error that is told is the one that came first
            return None if self.add_up is None else self.add_up()
        return None

    def told(self) -> Run:
        """What the result says beside the coordinator's totals."""
        first = self._first_step_at
        return msgspec.structs.replace(
            self._run,
            startup_seconds=0.0 if first is None else first - self._begun,
            checkpoints=self.folder.checkpoints,
            gpus=() if self._gpus is None else self._gpus.totals(),
            versions=self._versions(),
        )

    def _versions(self) -> Versions:
        return msgspec.structs.replace(versions(Path.cwd()), ranks=self._rank_versions)
