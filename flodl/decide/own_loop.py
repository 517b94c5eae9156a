"""The mind of a run whose training loop is the user's own: ranks meet in one group, and leave it when they are done.

Nothing is dealt and no round is ordered here, so nothing can be dealt again: it is all or nothing. A rank that dies or
fails ends the run, and where an averaging broke because another rank was lost, that one is the cause. Once a stop was
asked for, ranks leave as they hear of it, and an averaging that breaks so is part of the stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import (
    Alert,
    Command,
    End,
    Event,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankDied,
    RankFailed,
    RankReady,
    RankSuspected,
    StopRequested,
)
from flodl.decide.readiness import project_problems
from flodl.decide.roster import Place
from flodl.decide.timeouts import timeouts_of
from flodl.decide.totals import RankTotals, RunTotals
from flodl.decide.view import View
from flodl.spec.counting import all_are
from flodl.spec.job import JobSpec

__all__ = ["Decider", "OwnLoop", "decider"]

_EXITS = {"config": 2, "not_ready": 3, "step": 5, "contact": 5}
_EXIT_LOST, _EXIT_INTERRUPTED = 5, 130
_GENERATION = 1


class OwnLoop:
    """What `drive` and the record ask of a mind, for such a run."""

    def __init__(self, job: JobSpec, roster: Sequence[Place]) -> None:
        self._places = {place.rank: place for place in roster}
        self._limits = timeouts_of(job.membership.timeout_scale)
        self._activity: Literal["gathering", "forming", "training", "finishing", "over"] = "gathering"
        self._ready: dict[int, RankReady] = {}
        self._formed: set[int] = set()
        self._left: set[int] = set()
        self._cut: set[int] = set()  # whose averaging broke: they end, and are not the cause
        self._dead: list[int] = []
        self._begun_at = self._now = 0.0
        self._broken: RankFailed | None = None  # an averaging broke; who was lost is known in a moment
        self._stop: StopRequested | None = None
        self._due: float | None = None

    def handle(self, event: Event) -> tuple[Command, ...]:
        """What follows from `event`."""
        if self.over:
            return ()
        self._now = event.at
        if self._due is not None and event.at >= self._due:
            return self._late()
        match event:
            case RankReady():
                return self._on_ready(event)
            case GroupFormed():
                return self._on_formed(event)
            case RankFailed():
                return self._on_failed(event)
            case RankDied():
                return self._on_died(event)
            case Goodbye():
                self._left.add(event.rank)
                return self._gone()
            case StopRequested():
                return self._on_stop(event)
            case RankSuspected():
                return self._on_suspected(event)
            case _:
                return ()

    @property
    def deadline(self) -> float | None:
        """When patience ends; None: it is not tried."""
        return None if self.over else self._due

    @property
    def over(self) -> bool:
        """True after `End`."""
        return self._activity == "over"

    @property
    def fixed(self) -> dict[str, Any]:
        """There is nothing that a bundle could go on from."""
        return {}

    def view(self) -> View:
        """What a person sees of it."""
        return View(
            activity=self._activity, epoch=0, num_epochs=1, progress=0.0, rounds=0, anchor=0, phase="probe",
            samples_done=0, samples_per_second=0.0, loss=None, shares={}, eval={}, dead_ranks=tuple(self._dead),
        )  # fmt: skip

    def totals(self) -> RunTotals:
        """What it adds up to so far: what its loops do is not counted here."""
        ranks = tuple(
            RankTotals(rank=place.rank, host=place.host, device=place.device, batches=0, samples=0, compute_seconds=0.0,
                       data_wait_seconds=0.0, averaging_seconds=0.0, idle_seconds=0.0, peak_memory_bytes=0)
            for place in self._places.values()
        )  # fmt: skip
        return RunTotals(
            epochs_done=0, samples_done=0, rounds=0, wall_seconds=self._now - self._begun_at if self._begun_at else 0.0,
            samples_per_second=0.0, ideal_samples_per_second=0.0, utilisation=0.0, anchor=0, phase="probe",
            averaging_seconds_exposed=0.0, divergence_last=0.0, train_loss=None, eval={},
            dead_ranks=tuple(self._dead), ranks=ranks,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ events

    def _on_ready(self, event: RankReady) -> tuple[Command, ...]:
        self._ready[event.rank] = event
        if self._ready.keys() != self._places.keys():
            return ()
        problems = project_problems(self._ready, tuple(self._places.values()))
        if problems:
            return self._end("failed", _EXITS["not_ready"], "\n".join(map(str, problems)))
        self._activity = "forming"
        ranks = tuple(sorted(self._places))
        reason = all_are(len(ranks), "rank", "ready for the loop")
        return (FormGroup(to=ranks, generation=_GENERATION, ranks=ranks, reason=reason),)

    def _on_formed(self, event: GroupFormed) -> tuple[Command, ...]:
        self._formed.add(event.rank)
        if self._formed == self._places.keys() and self._activity == "forming":
            self._activity, self._begun_at = "training", event.at
        return ()

    def _on_failed(self, event: RankFailed) -> tuple[Command, ...]:
        if event.rank in self._left:
            return ()
        if event.kind != "contact":
            return self._end("failed", _EXITS[event.kind], self._told(event))
        self._cut.add(event.rank)
        if self._stop is None and self._broken is None:
            self._broken, self._due = event, event.at + self._limits.suspected
        return self._gone()

    def _on_died(self, event: RankDied) -> tuple[Command, ...]:
        if event.rank in self._left or event.rank in self._cut:
            return ()
        self._dead.append(event.rank)
        code = _EXIT_LOST if self._begun_at else _EXITS["not_ready"]
        return self._end("failed", code, f"{self._name(event.rank)}: {event.cause}")

    def _on_stop(self, event: StopRequested) -> tuple[Command, ...]:
        if self._stop is not None:
            return ()
        self._stop = event
        if not self._formed:
            return self._stopped(event, event.reason)
        self._activity = "finishing"
        if self._broken is None:
            self._due = event.at + self._limits.dead
        return (Finish(to=tuple(sorted(self._places.keys() - self._left)), reason=event.reason),)

    def _all_left(self) -> tuple[Command, ...]:
        if self._stop is not None and self._stop.status == "stopped":
            return self._end("stopped", 0, self._stop.reason)
        return self._end("done", 0, "all loops have ended")

    def _on_suspected(self, event: RankSuspected) -> tuple[Command, ...]:
        if event.rank in self._left or event.rank in self._cut:
            return ()
        text = f"{self._name(event.rank)} has not been heard for {event.silent_seconds:.1f} s"
        reason = f"silent for {self._limits.dead:g} s it is taken for dead, and the run ends"
        return (Alert(text=text, rank=event.rank, reason=reason),)

    def _gone(self) -> tuple[Command, ...]:
        """Whether nobody is left."""
        if self._left | self._cut != self._places.keys():
            return ()
        if self._left == self._places.keys():
            return self._all_left()
        if self._stop is None or self._broken is not None:
            return ()  # who was lost is known in a moment
        named = ", ".join(self._name(rank) for rank in sorted(self._cut - self._left))
        why = f"{self._stop.reason}: {named}: in an averaging, when others had ended their loops already"
        return self._stopped(self._stop, why)

    def _stopped(self, stop: StopRequested, why: str) -> tuple[Command, ...]:
        return self._end(stop.status, _EXIT_INTERRUPTED if stop.status == "interrupted" else 0, why)

    def _late(self) -> tuple[Command, ...]:
        if self._broken is not None:
            return self._end("failed", _EXITS["contact"], self._told(self._broken))
        why = f"{self._stop.reason if self._stop else ''}: the loops did not end within {self._limits.dead:g} s"
        return self._end("interrupted", _EXIT_INTERRUPTED, why)

    # --------------------------------------------------------------------------------------------------------- end

    def _end(
        self, status: Literal["done", "stopped", "failed", "interrupted"], code: int, reason: str
    ) -> tuple[Command, ...]:
        self._activity = "over"
        return (End(status=status, exit_code=code, totals=self.totals(), reason=reason),)

    def _told(self, event: RankFailed) -> str:
        told = f"{self._name(event.rank)}: {event.message}"
        if event.kind != "contact" or not self._left:
            return told
        ended = ", ".join(self._name(rank) for rank in sorted(self._left))
        return f"{told}; {ended} had ended its loop already, and all ranks make the same calls of the averager"

    def _name(self, rank: int) -> str:
        place = self._places[rank]
        return f"rank {rank} ({place.device} of {place.host})"


Decider = Coordinator | OwnLoop


def decider(job: JobSpec, roster: Sequence[Place]) -> Decider:
    """Who decides this job. job: with a resolved mode."""
    return Coordinator(job, roster) if job.loop is None else OwnLoop(job, roster)
