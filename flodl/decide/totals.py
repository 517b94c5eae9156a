"""What a run adds up to: per rank, per epoch, whole."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec

__all__ = [
    "EpochMetrics",
    "IntervalMetrics",
    "RankEpoch",
    "RankTotals",
    "Reduction",
    "RunTotals",
    "Scalar",
    "training_figures",
]

Reduction = Literal["mean", "sum", "max", "min", "last"]


class Scalar(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A named figure of the user's step, reduced so far, in a form that goes on over batches, windows and ranks.

    value: finite. mean: the sum of value x weight, with weight the samples it was taken over; max, min, sum, last: the
    figure itself, weight unused. `merged` is associative, and but for "last" the order does not matter.
    """

    reduction: Reduction
    value: float
    weight: float = 0.0

    def merged(self, later: Scalar) -> Scalar:
        """This figure and a later one together. Where their reductions differ, the later one stands alone."""
        match (self.reduction, later.reduction):
            case ("mean", "mean"):
                return Scalar("mean", _sum(self.value, later.value), self.weight + later.weight)
            case ("sum", "sum"):
                return Scalar("sum", _sum(self.value, later.value))
            case ("max", "max"):
                return later if later.value > self.value else self
            case ("min", "min"):
                return later if later.value < self.value else self
            case _:
                return later

    @property
    def result(self) -> float:
        """What a person reads."""
        if self.reduction == "mean":
            return self.value / self.weight if self.weight > 0.0 else 0.0
        return self.value


def _sum(first: float, second: float) -> float:
    """The largest number there is where it would be infinite: no record holds that."""
    return max(-sys.float_info.max, min(sys.float_info.max, first + second))


class _Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, strict, finite."""


class RankEpoch(_Figures, frozen=True, kw_only=True):
    """One rank's part of an epoch. batch_share: its part of the batches, 0..1.

    skipped_batches: of its batches, those whose float16 gradients overflowed, which changed nothing.
    """

    rank: int
    batches: int
    samples: int
    samples_per_second: float
    batch_share: float
    compute_ms: float
    data_wait_ms: float
    averaging_ms: float
    idle_ms: float
    skipped_batches: int = 0


class EpochMetrics(_Figures, frozen=True, kw_only=True):
    """One epoch of the whole world.

    loss: weighted by samples, null where it was not finite. wall_seconds: previous epoch's end to this one's.
    """

    epoch: int
    loss: float | None
    wall_seconds: float
    samples: int
    samples_per_second: float
    scalars: dict[str, float]
    eval: dict[str, float]
    rounds: int
    anchor: int
    phase: str
    divergence: float
    learning_rate: float
    ranks: tuple[RankEpoch, ...]


class IntervalMetrics(_Figures, frozen=True, kw_only=True):
    """A part of an epoch. interval: 1.. of intervals. samples: of the epoch so far, as are the scalars and rounds.

    loss (weighted by samples), wall_seconds, samples_per_second: since the last part's end.
    """

    epoch: int
    interval: int
    intervals: int
    samples: int
    loss: float | None
    wall_seconds: float
    samples_per_second: float
    scalars: dict[str, float]
    rounds: int
    anchor: int
    phase: str
    divergence: float
    learning_rate: float


def training_figures(metrics: EpochMetrics | IntervalMetrics) -> dict[str, float]:
    """What the training itself tells. `loss` is the run's own: a figure of the step by that name is none beside it."""
    loss = {} if metrics.loss is None else {"loss": metrics.loss}
    return loss | {name: value for name, value in sorted(metrics.scalars.items()) if name != "loss"}


class RankTotals(_Figures, frozen=True, kw_only=True):
    """One rank's part of the whole run; its averaging time is the exposed part."""

    rank: int
    host: str
    device: str
    batches: int
    samples: int
    compute_seconds: float
    data_wait_seconds: float
    averaging_seconds: float
    idle_seconds: float
    peak_memory_bytes: int


class RunTotals(_Figures, frozen=True, kw_only=True):
    """The whole run. wall_seconds: first window's start to last accepted round, less evaluation and saves.

    ideal_samples_per_second: sum over ranks of what each did per second of its own compute. utilisation: the
    quotient of samples_per_second and that. samples_done counts accepted samples only. dead_ranks: at the end.
    restarts: rank -> processes that were started for it after its first one had died.
    """

    epochs_done: int
    samples_done: int
    rounds: int
    wall_seconds: float
    samples_per_second: float
    ideal_samples_per_second: float
    utilisation: float
    anchor: int
    phase: str
    averaging_seconds_exposed: float
    divergence_last: float
    train_loss: float | None
    eval: dict[str, float]
    dead_ranks: tuple[int, ...]
    ranks: tuple[RankTotals, ...]
    restarts: dict[int, int] = {}
