"""What the coordinator knows: the job, the roster, and plain state in small parts.

Everything that changes lies in `State` or in `Pace`, so that snapshot and restore are one line each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from flodl.decide.callbacks import Callbacks
from flodl.decide.ledger import Ledger
from flodl.decide.limits import Stopping
from flodl.decide.membership import Membership
from flodl.decide.messages import Alert, Command, End, RankReady, Resumed, StopRequested
from flodl.decide.pace import Pace
from flodl.decide.roster import Place
from flodl.decide.rounds import Order
from flodl.decide.tally import Intervals, Outcome, Tally
from flodl.decide.timeouts import timeouts_of
from flodl.decide.totals import RunTotals
from flodl.spec.job import JobSpec

__all__ = ["Activity", "Mind", "State", "alert", "asked"]

Activity = Literal["gathering", "forming", "training", "recovering", "repairing", "joining", "finishing", "over"]


class State(msgspec.Struct, kw_only=True):
    """All plain state. formed: rank -> newest round it holds, of the group that is being formed. digests: of the
    common start. order: what the ranks run now. accepted: newest accepted round. failure: why the run must end as
    failed once it has saved. bad_rounds: rounds in a row with a contribution that was not finite. epochs_ended: how
    many were recorded. repairing_round: the round that a repair spreads. newcomers: ranks that take their places and
    may not hold the newest accepted round yet. origin: the bundle that the run goes on from, until it does."""

    membership: Membership
    ledger: Ledger
    tally: Tally
    callbacks: Callbacks
    stopping: Stopping
    intervals: Intervals
    activity: Activity = "gathering"
    generation: int = 0
    readies: dict[int, RankReady] = {}
    formed: dict[int, int] = {}
    digests: dict[int, str] = {}
    order: Order | None = None
    accepted: int = 0
    repairing_round: int = 0
    newcomers: list[int] = []
    stop: StopRequested | None = None
    failure: str = ""
    bad_rounds: int = 0
    epochs_ended: list[int] = []
    origin: Resumed | None = None


class Mind:
    """The one mutable thing that the coordinator's parts share. fixed: what the save under way takes along."""

    def __init__(self, job: JobSpec, places: Sequence[Place]) -> None:
        self.job = job
        self.places = tuple(places)
        self.by_rank = {place.rank: place for place in places}
        self.limits = timeouts_of(job.membership.timeout_scale)
        ranks = tuple(self.by_rank)
        self.pace = Pace(job, ranks, {place.rank: place.batch_size / place.speed for place in places})
        self.fixed: dict[str, Any] = {}
        self.state = State(
            membership=Membership(alive=list(ranks)),
            ledger=Ledger(epoch_samples=0, num_epochs=job.trainer.num_epochs),
            tally=Tally(),
            callbacks=Callbacks(),
            stopping=Stopping(),
            intervals=Intervals(),
        )

    @property
    def alive(self) -> tuple[int, ...]:
        """Living ranks, sorted."""
        return tuple(self.state.membership.alive)

    @property
    def is_solo(self) -> bool:
        """One device in all: the same loop, the mode is ignored."""
        return len(self.places) == 1

    @property
    def works_alone(self) -> bool:
        """True where ranks run numbered rounds by themselves (grants) instead of waiting for `Average`."""
        return self.is_solo or self.job.elche.is_sync or self.job.elche.averages == "gradients"

    def name(self, rank: int) -> str:
        """A rank as people know it."""
        place = self.by_rank.get(rank)
        return f"rank {rank} ({place.device} of {place.host})" if place else f"rank {rank}"

    def speeds(self) -> dict[int, float | None]:
        """Smoothed milliseconds per batch of the living ranks, None where unknown."""
        return self.pace.smoothed_ms(self.alive)

    def batch_sizes(self) -> dict[int, int]:
        """Samples per batch of the living ranks."""
        return {rank: self.by_rank[rank].batch_size for rank in self.alive}

    def outcome(self) -> Outcome:
        """What `Tally.totals` wants to know."""
        state = self.state
        return Outcome(
            epochs_done=len(state.epochs_ended),
            samples_done=state.ledger.samples_done,
            anchor=self.pace.elche.anchor,
            phase=self.pace.elche.phase.label,
            eval=dict(state.callbacks.results),
            dead_ranks=state.membership.dead,
            restarts=state.membership.restarts,
        )

    def totals(self) -> RunTotals:
        """What the run adds up to so far."""
        return self.state.tally.totals(self.places, self.outcome())

    def end(
        self,
        status: Literal["done", "degraded", "stopped", "failed", "interrupted"],
        exit_code: int,
        reason: str,
    ) -> list[Command]:
        """The run is over."""
        self.state.activity = "over"
        return [End(status=status, exit_code=exit_code, totals=self.totals(), reason=reason)]

    def fix(self) -> None:
        """What is known now belongs to the round that is saved now."""
        self.fixed = self.snapshot()

    def snapshot(self) -> dict[str, Any]:
        """Plain, JSON-able state."""
        return {
            "state": msgspec.to_builtins(self.state, str_keys=True),
            "pace": self.pace.snapshot(),
            "asked": asked(self.job),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot of the same job over."""
        self.state = msgspec.convert(snapshot["state"], State, str_keys=True)
        self.pace.restore(snapshot["pace"])


def asked(job: JobSpec) -> dict[str, Any]:
    """What of a job has to be the same where a run goes on, and what makes its pace another one (`pace`)."""
    trainer = job.trainer
    return {
        "model": job.model.target,
        "trainer.seed": trainer.seed,
        "trainer.batch_size": trainer.batch_size,
        "trainer.limit_batches": trainer.limit_batches,
        "pace": msgspec.json.encode((job.elche, job.guard, job.meta, trainer.deterministic)).decode(),
    }


def alert(text: str, reason: str, rank: int | None = None) -> Alert:
    """Something a person should know."""
    return Alert(text=text, rank=rank, reason=reason)
