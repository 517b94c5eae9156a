"""One cycle per accepted round: readings -> ElChe's proposal -> guard's verdict -> meta's nudge -> commit -> quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.decide.elche import ElChe
from flodl.decide.guard import make_guard
from flodl.decide.messages import WindowDone
from flodl.decide.meta import MetaController
from flodl.decide.proposal import Proposal
from flodl.decide.quota import Quotas
from flodl.decide.readings import Reading
from flodl.decide.rounds import Order
from flodl.decide.verdict import NudgeDown
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import JobSpec

__all__ = ["GRANT_MS", "Pace"]

GRANT_MS = 1000.0  # what a grant is sized for: its edge costs a few milliseconds of an idle device
MAX_GRANT_ROUNDS = 1000
DETERMINISTIC_GRANT_ROUNDS = 16
SHORT_GRANT = 0.5  # what is left of an epoch after a grant, as a part of it, that is taken with it
GRANT_GROWTH = 4  # a grant is at most this many times the one before it: the first timings are set-up time


class Pace:
    """ElChe, its guard and the meta-controller, and the length of grants.

    Where the job is deterministic no measured time decides anything: a batch takes what its size and the rank's
    configured speed say.
    """

    def __init__(self, job: JobSpec, ranks: tuple[int, ...], nominal_ms: Mapping[int, float] | None = None) -> None:
        """nominal_ms: rank -> what a batch is taken to last where the job is deterministic; None: the same for all."""
        self._job = job
        self._measures = not job.trainer.deterministic
        self._nominal_ms = nominal_ms or dict.fromkeys(ranks, 1.0)
        self.restart(ranks)

    def restart(self, ranks: tuple[int, ...]) -> None:
        """Nothing is known yet of these ranks."""
        job = self._job
        self.elche = ElChe(_elche_config(job), ranks)
        self._guard = make_guard(job.guard, job.elche)
        self._meta = MetaController(job.meta)
        self.grant_rounds = 1
        self.nudged = False
        self.reason = "no timing is known yet"

    @property
    def is_settled(self) -> bool:
        """True when anchor and divergence have stopped moving."""
        return self._meta.is_settled(self.elche.phase)

    def observe(self, order: Order, alive: tuple[int, ...]) -> None:
        """An order's last round is accepted: take its figures in and commit what follows from them."""
        living = {rank: order.reports[rank] for rank in alive if rank in order.reports}
        reports = order.reports.values()
        batches = [done.batches for done in reports]
        divergence = order.divergence
        proposal = self._measured(order, living) if self._measures else self._nominal(living)
        verdict = self._guard.observe(divergence, sum(batches), max(batches, default=0))
        learning_rate = max([done.learning_rate for done in reports], default=0.0)
        nudge = self._meta.observe(
            self.elche.anchor, learning_rate, verdict, self.elche.cycle_phase, divergence, span=sum(batches)
        )
        self.reason = self.elche.commit(proposal, verdict, nudge=nudge)
        self.nudged = nudge is not None or isinstance(verdict, NudgeDown)

    def _measured(self, order: Order, living: Mapping[int, WindowDone]) -> Proposal | None:
        """What the ranks' figures lead to."""
        readings = {
            rank: Reading(done.timed_batches, done.timed_ms)
            for rank, done in living.items()
            if done.timed_batches > 1 or not order.is_rest  # a single one there is noise, and it may be short, too
        }
        return self.elche.report(
            readings,
            # A round beside training may well outlast such a rest.
            sync_ms=None if order.is_rest and self._job.elche.is_async else self._sync_ms(order, living),
            compute_ms={rank: done.compute_ms for rank, done in living.items()},
            round_ms=order.round_ms,
        )

    def _sync_ms(self, order: Order, living: Mapping[int, WindowDone]) -> float:
        """What the averaging cost the rank that it cost most."""
        exposed = max([ms for rank, ms in order.exposed_ms.items() if rank in living], default=0.0)
        return exposed + self._held_ms(living)

    def _held_ms(self, living: Mapping[int, WindowDone]) -> float:
        """How long even the rank that waited least stood still between two windows: no rank was waited for then, but
        orders on their way. A price of averaging as much as the sum itself, and on fast cards the larger one."""
        elche = self._job.elche
        if elche.is_async or elche.is_sync or len(living) < 2:
            return 0.0
        return min(done.idle_ms for done in living.values())

    def _nominal(self, living: Mapping[int, WindowDone]) -> Proposal | None:
        """Speeds as configured, and an averaging that costs what leaves the anchor alone."""
        compute_ms = {rank: done.batches * self._nominal_ms[rank] for rank, done in living.items()}
        return self.elche.report(
            {rank: Reading(living[rank].batches, ms) for rank, ms in compute_ms.items()},
            sync_ms=0.75 * self._job.elche.overhead_target * max(compute_ms.values(), default=0.0),
            compute_ms=compute_ms,
        )

    def resize_grant(self, units: int, wall_ms: float) -> None:
        """Size the next grant from one of `units` rounds (one device: batches) that took `wall_ms`."""
        if not self._measures:
            self.grant_rounds = min(self.grant_rounds * GRANT_GROWTH, DETERMINISTIC_GRANT_ROUNDS)
            return
        fitting = int(GRANT_MS * max(1, units) / wall_ms) if wall_ms > 0.0 else self.grant_rounds * GRANT_GROWTH
        self.grant_rounds = max(1, min(fitting, self.grant_rounds * GRANT_GROWTH, MAX_GRANT_ROUNDS))

    def grant(self, left: int) -> int:
        """Batches of one device's next grant, with `left` to the epoch's end: a short rest is not worth an edge."""
        return left if left <= (1.0 + SHORT_GRANT) * self.grant_rounds else self.grant_rounds

    def quotas(self, epoch_batches: int, slack_ms: Mapping[int, float]) -> Quotas:
        """Batches per rank of the next window."""
        return self.elche.quotas(epoch_batches, slack_ms if self._measures else None)

    def smoothed_ms(self, ranks: tuple[int, ...]) -> dict[int, float | None]:
        """Milliseconds per batch of `ranks`, None where unknown."""
        return {rank: self.elche.smoothed_ms(rank) for rank in ranks}

    def add(self, rank: int) -> None:
        """A rank joins; what was known of its speed is not held against it."""
        self.elche.add(rank)

    def remove(self, rank: int) -> None:
        """A rank is gone."""
        self.elche.remove(rank)

    def snapshot(self) -> dict[str, Any]:
        """Plain state."""
        return {
            "elche": self.elche.snapshot(),
            "guard": self._guard.snapshot(),
            "meta": self._meta.snapshot(),
            "grant_rounds": self.grant_rounds,
            "nudged": self.nudged,
            "reason": self.reason,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot over."""
        self.elche = ElChe.restore(_elche_config(self._job), snapshot["elche"])
        self._guard.restore(snapshot["guard"])
        self._meta.restore(snapshot["meta"])
        self.grant_rounds = snapshot["grant_rounds"]
        self.nudged = snapshot["nudged"]
        self.reason = snapshot["reason"]


def _elche_config(job: JobSpec) -> ElCheConfig:
    """The job's; a run of few windows has short ones: it asks whether things work."""
    return job.elche if job.debug.max_windows is None else job.elche.replace(anchor=1, min_anchor=1)
