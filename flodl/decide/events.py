"""Facts in: everything that the Coordinator hears. Imported from `messages`.

An event is something that happened; ``at`` is the controller's monotonic clock in seconds, stamped by the world when
the event arrives (ranks send durations, never timestamps).
"""

from __future__ import annotations

from typing import Any, Literal

from flodl.decide.plain import Plain
from flodl.decide.totals import Scalar

__all__ = [
    "AveragingDone",
    "BundleKept",
    "CallbackName",
    "CallbackResult",
    "EndBy",
    "Event",
    "Goodbye",
    "GroupFormed",
    "RankDied",
    "RankFailed",
    "RankReady",
    "RankSuspected",
    "Resumed",
    "StopRequested",
    "StopStatus",
    "TimeReached",
    "WindowDone",
]

CallbackName = Literal["eval", "save"]
StopStatus = Literal["stopped", "interrupted"]


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


class BundleKept(Plain, frozen=True, kw_only=True, tag=True):
    """What came of the save of a round by a rank. error: why there is no bundle of it, "" where it is in place.

    The rank tells what it could not send, the record tells the rest. remarks: what went wrong and does it no harm.
    """

    at: float
    rank: int
    round: int
    error: str = ""
    remarks: tuple[str, ...] = ()


class Resumed(Plain, frozen=True, kw_only=True, tag=True):
    """The run goes on from a bundle. snapshot: of the coordinator that had it saved. origin: its meta file."""

    at: float
    round: int
    origin: str
    snapshot: dict[str, Any]


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
