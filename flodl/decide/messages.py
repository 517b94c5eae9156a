"""Facts in, orders out: everything that the Coordinator hears and says.

An `Event` is something that happened; ``at`` is the controller's monotonic clock in seconds, stamped by the world
when the event arrives (ranks send durations, never timestamps). A `Command` is an order with its reason. Both are
what the journal holds and what the wire carries, so no field may ever be NaN or infinite (JSON has neither).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from flodl.decide.keeping import BundleKept, Resumed, SaveBegun
from flodl.decide.plain import Plain
from flodl.decide.replacing import Dismiss, Restart
from flodl.decide.totals import EpochMetrics, IntervalMetrics, RunTotals, Scalar

__all__ = [
    "Alert",
    "Average",
    "AveragingDone",
    "BundleKept",
    "CallbackName",
    "CallbackResult",
    "Command",
    "Cut",
    "Dismiss",
    "End",
    "EndBy",
    "EpochEnded",
    "Event",
    "Finish",
    "FormGroup",
    "Goodbye",
    "GroupFormed",
    "IntervalEnded",
    "Range",
    "RankDied",
    "RankFailed",
    "RankOrder",
    "RankReady",
    "RankSuspected",
    "Restart",
    "Resumed",
    "Round",
    "RunWindow",
    "SaveBegun",
    "StopRequested",
    "StopStatus",
    "TimeReached",
    "WindowDone",
]

CallbackName = Literal["eval", "save"]
StopStatus = Literal["stopped", "interrupted"]


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


class CallbackResult(Plain, frozen=True, kw_only=True):
    """What came of a callback: values (metric name -> finite number), or an error in words.

    epoch: the one it belongs to. samples_done: of the run, where it was taken within that epoch; 0: at its end.
    """

    name: CallbackName
    ok: bool
    values: dict[str, float] = {}
    error: str = ""
    seconds: float = 0.0
    epoch: int = -1
    samples_done: int = 0


# ---------------------------------------------------------------------------------------------------- events


class RankReady(Plain, frozen=True, kw_only=True, tag=True):
    """A rank has built model, data and step, and can be given work. precision, is_compiled: of its forward passes.

    project: the files of the user's project that it has imported, each with a hash. incarnation: see `Restart`.
    """

    at: float
    rank: int
    host: str
    device: str
    num_samples: int
    data_signature: str
    fingerprint: str  # of (name, shape, dtype) of every parameter and buffer
    num_parameters: int
    batch_size: int
    precision: str = "float32"
    is_compiled: bool = False
    versions: dict[str, str] = {}
    project: dict[str, str] = {}
    incarnation: int = 0


class GroupFormed(Plain, frozen=True, kw_only=True, tag=True):
    """A rank has joined a generation's process group.

    last_round: newest round whose result it holds. digest: hash of parameters and buffers after the common start
    ("" where the generation had none). trial: what came of the one evaluation batch that `FormGroup` asked for.
    """

    at: float
    rank: int
    generation: int
    last_round: int
    digest: str = ""
    trial: CallbackResult | None = None


class WindowDone(Plain, frozen=True, kw_only=True, tag=True):
    """A rank reached the end of a window (one round), or of a grant (several rounds that the ranks ran alone).

    round: the last round whose work is in it. batches, samples: really run. timed_batches, timed_ms: the reading
    for ElChe (a first window's first batch is left out where there is another; timed_ms is compute only).
    compute_ms, data_wait_ms, idle_ms (waiting for orders and slower ranks), callback_ms: of this window, all
    batches. exposed_ms: averaging time that training waited for since the last report. loss_sum: sum over batches
    of mean batch loss x samples, None where one was not finite. scalars: what the step recorded
    (flodl.record_scalar), by name. skipped_batches, skipped_samples: of these, those whose float16 gradients
    overflowed: they have no mass. notes: for people.
    divergence and nonfinite: of the grant's rounds (see AveragingDone), grants only.
    """

    at: float
    rank: int
    generation: int
    round: int
    batches: int
    samples: int
    timed_batches: int
    timed_ms: float
    compute_ms: float
    data_wait_ms: float = 0.0
    idle_ms: float = 0.0
    callback_ms: float = 0.0
    exposed_ms: float = 0.0
    loss_sum: float | None = 0.0
    skipped_batches: int = 0
    skipped_samples: int = 0
    scalars: dict[str, Scalar] = {}
    divergence: float = 0.0
    nonfinite: str = ""
    learning_rate: float = 0.0
    peak_memory_bytes: int = 0
    callbacks: tuple[CallbackResult, ...] = ()
    notes: tuple[str, ...] = ()


class AveragingDone(Plain, frozen=True, kw_only=True, tag=True):
    """A rank holds the result of a round. divergence: ||pre - post|| / ||post||, 0 where nothing is compared.

    exposed_ms: how long training waited for it (0 in cpu_async: that comes with the next WindowDone).
    duration_ms: the averaging itself. nonfinite: name of this rank's first parameter that was not finite: its
    contribution was left out and it adopted the consensus.
    """

    at: float
    rank: int
    generation: int
    round: int
    divergence: float
    exposed_ms: float
    duration_ms: float
    nonfinite: str = ""


class Goodbye(Plain, frozen=True, kw_only=True, tag=True):
    """A rank has done what `Finish` asked and leaves."""

    at: float
    rank: int
    callbacks: tuple[CallbackResult, ...] = ()


class RankDied(Plain, frozen=True, kw_only=True, tag=True):
    """A rank is gone (seen by its agent, or declared dead by silence). cause: for people, with the signal's name.

    can_return: False where nobody is left on its host who could start it again. incarnation: see `Restart`.
    """

    at: float
    rank: int
    cause: str
    can_return: bool = True
    incarnation: int = 0


class RankSuspected(Plain, frozen=True, kw_only=True, tag=True):
    """Nothing was heard from a rank for a while. It may come back: nothing follows from it but a word to people."""

    at: float
    rank: int
    silent_seconds: float


class RankFailed(Plain, frozen=True, kw_only=True, tag=True):
    """A rank tells its own failure before it ends. kind: config (wrong key or value: exit 2), not_ready (data, device,
    build: exit 3), step (the user's code raised while training), contact (it could not reach the others: where one has
    died, that is why). message: for people. trace: the last lines. incarnation: see `Restart`."""

    at: float
    rank: int
    kind: Literal["config", "not_ready", "step", "contact"]
    message: str
    trace: str = ""
    incarnation: int = 0


class StopRequested(Plain, frozen=True, kw_only=True, tag=True):
    """Somebody wants the run to end in order: a signal interrupts it, a stop rule or the user's program stops it."""

    at: float
    reason: str
    status: StopStatus = "interrupted"


class TimeReached(Plain, frozen=True, kw_only=True, tag=True):
    """The coordinator's deadline has come and nothing else happened. (Every other event tells the time as well.)"""

    at: float


class EndBy(Plain, frozen=True, kw_only=True, tag=True):
    """The run has to be over `seconds_left` from now: a time of day, told as a duration. rule: what asks for it."""

    at: float
    seconds_left: float
    rule: str


Event = (
    RankReady
    | GroupFormed
    | WindowDone
    | AveragingDone
    | Goodbye
    | RankDied
    | RankSuspected
    | RankFailed
    | BundleKept
    | Resumed
    | StopRequested
    | TimeReached
    | EndBy
)

# -------------------------------------------------------------------------------------------------- commands


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
    """

    to: tuple[int, ...]
    callbacks: tuple[CallbackName, ...] = ()
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


class End(Plain, frozen=True, kw_only=True, tag=True):
    """The run is over. exit_code: CLUSTER 2.8."""

    status: Literal["done", "degraded", "stopped", "failed", "interrupted"]
    exit_code: int
    totals: RunTotals
    reason: str


RankOrder = FormGroup | RunWindow | Average | Cut | Finish  # what goes to ranks
Command = RankOrder | SaveBegun | EpochEnded | IntervalEnded | Alert | Restart | Dismiss | End
