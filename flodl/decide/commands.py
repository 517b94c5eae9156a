"""Orders out: everything that the Coordinator says, each with its reason. Imported from `messages`."""

from __future__ import annotations

from typing import Literal

import msgspec

from flodl.decide.events import CallbackName
from flodl.decide.plain import Plain
from flodl.decide.totals import EpochMetrics, IntervalMetrics, RunTotals
from flodl.spec.checkpoint import SaveReason

__all__ = [
    "Alert",
    "Average",
    "Command",
    "Cut",
    "Dismiss",
    "End",
    "EpochEnded",
    "Finish",
    "FormGroup",
    "IntervalEnded",
    "Range",
    "RankOrder",
    "Restart",
    "Round",
    "RunWindow",
    "SaveBegun",
]


class Range(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """Positions start..stop-1 of an epoch's permutation."""

    epoch: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Round(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One averaging and the work before it, as one rank sees it.

    number: counts from 1 over the whole run. batches: what this rank runs before it. samples_before: samples of
    the whole run dealt to windows before this round. samples: samples of all ranks in this round (both drive the
    learning rate: schedule(samples_before + i/q * samples)).
    """

    number: int
    batches: int
    samples_before: int
    samples: int


class FormGroup(Plain, frozen=True, kw_only=True, tag=True):
    """Abandon what is under way and form this generation's group, in this order of ranks.

    source: the rank whose parameters, buffers (and, when repairing, optimizer and replicated state) everybody
    adopts; None: nobody's. accept_round: the round that counts as accepted once the source's state is adopted
    (round acceptance after a death); 0: none. A window that waits for `Average` goes on and keeps what it has run; a
    grant ends: the rank falls back to its last finished round and waits for a new order. trial: the rank that, once
    it has the common start, evaluates one batch, so that a broken evaluation is told before anything is trained.
    bundle: the common start is the bundle of this round; the source fetches it, everybody adopts it. joiners: ranks
    that take a place at a round's edge: they alone adopt all that the source holds since `accept_round`.
    """

    to: tuple[int, ...]
    generation: int
    ranks: tuple[int, ...]
    source: int | None = None
    accept_round: int = 0
    trial: int | None = None
    bundle: int | None = None
    joiners: tuple[int, ...] = ()
    reason: str


class RunWindow(Plain, frozen=True, kw_only=True, tag=True):
    """Run these rounds. ranges: everything this rank holds from the last planned point on, whole and in order.

    The list is restated, not appended: it replaces what the rank held. In cpu_async the rank may already have run
    the first batches of it (never more than the overshoot it was allowed); those count.
    alone: the ranks run the rounds without waiting for `Average` (a grant). max_overshoot: batches that may be run
    past the point where the rank did report (it may be past the planned one) before the round's result is there (0:
    none). callbacks: done before the window begins, on the consensus. midway: they judge a part of `epoch`; else the
    whole of the one before it. anchor: at which the quotas were made, for the record alone.
    """

    to: tuple[int, ...]
    generation: int
    rounds: tuple[Round, ...]
    ranges: tuple[Range, ...]
    alone: bool = False
    max_overshoot: int = 0
    callbacks: tuple[CallbackName, ...] = ()
    midway: bool = False
    anchor: int = 0
    epoch: int
    reason: str


class Average(Plain, frozen=True, kw_only=True, tag=True):
    """Everybody has reported: average round `round` now.

    masses: one per rank of the generation in its order: n^gamma, 0 for a rank that did not move; a contribution's
    weight is mass / sum(masses of the contributions that are finite). consensus: adopt the round's consensus even
    where elastic blending is on (last rounds and nudges).
    """

    to: tuple[int, ...]
    generation: int
    round: int
    masses: tuple[float, ...]
    consensus: bool = False
    reason: str


class Cut(Plain, frozen=True, kw_only=True, tag=True):
    """End the present window at the next step's edge and report what was run."""

    to: tuple[int, ...]
    reason: str


class Finish(Plain, frozen=True, kw_only=True, tag=True):
    """Training is over: do the callbacks on the consensus, say goodbye, leave.

    The rank that saves is sent off first and alone; the others, who hold the same consensus, follow when it is safe.
    epoch: newest one that is in the consensus; a rank that has just come back has trained nothing of it.
    """

    to: tuple[int, ...]
    callbacks: tuple[CallbackName, ...] = ()
    epoch: int = 0
    reason: str


class SaveBegun(Plain, frozen=True, kw_only=True, tag=True):
    """The order beside it has `rank` save what round `round` has come to. Not sent to ranks: it goes to the record.

    global_step: batches of all ranks so far. evaluates: the same rank evaluates the same weights.
    """

    rank: int
    round: int
    generation: int
    epoch: int
    global_step: int
    why: SaveReason
    evaluates: bool = False
    reason: str


class EpochEnded(Plain, frozen=True, kw_only=True, tag=True):
    """An epoch's last sample is done. Not sent to ranks: it goes to the record."""

    metrics: EpochMetrics
    reason: str


class IntervalEnded(Plain, frozen=True, kw_only=True, tag=True):
    """A part of an epoch is done (trainer.reports_per_epoch). Not sent to ranks: it goes to the record."""

    metrics: IntervalMetrics
    reason: str


class Alert(Plain, frozen=True, kw_only=True, tag=True):
    """Something a person should know. Goes to the terminal and the log."""

    text: str
    rank: int | None = None
    reason: str


class Restart(Plain, frozen=True, kw_only=True, tag=True):
    """Start another process for a dead rank's device. Not sent to ranks: the world has its agent do it.

    incarnation: 1 for the first replacement; nothing that an earlier process of this rank says is heard any more.
    """

    rank: int
    incarnation: int
    reason: str


class Dismiss(Plain, frozen=True, kw_only=True, tag=True):
    """End the process of a rank that is not among the living: a replacement that cannot be used, or is not needed any
    more. Not sent to ranks."""

    rank: int
    reason: str


class End(Plain, frozen=True, kw_only=True, tag=True):
    """The run is over. exit_code: CLUSTER 2.8."""

    status: Literal["done", "degraded", "stopped", "failed", "interrupted"]
    exit_code: int
    totals: RunTotals
    reason: str


RankOrder = FormGroup | RunWindow | Average | Cut | Finish  # what goes to ranks
Command = RankOrder | SaveBegun | EpochEnded | IntervalEnded | Alert | Restart | Dismiss | End
