"""The figures by which runs are compared: one table of what there is, and each run's own values.

A figure that a run does not have is None and is shown as "-", never as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from flodl.record.result import Result
from flodl.report.history import EpochPoint
from flodl.spec.stop import TRAIN

__all__ = ["ABSENT", "FIGURES", "Figure", "Figures", "Goal", "figures_of", "reading", "shown"]

ABSENT = "-"
_TRAIN_LOSS = f"{TRAIN}loss"


class Figure(msgspec.Struct, frozen=True):
    """One figure. better: which way, for those by which arms are told apart. digits: significant ones; 0: a count.
    unit %: the value itself is a part, 0..1."""

    name: str
    title: str
    unit: str = ""
    better: Literal["less", "more", ""] = ""
    digits: int = 3


FIGURES = (
    Figure("loss_at_epoch", "training loss", better="less", digits=4),
    Figure("metric_at_epoch", "evaluation", digits=4),
    Figure("metric_at_end", "at the end", digits=4),
    Figure("seconds_to_target", "to target", "s", "less"),
    Figure("loss_per_second", "loss per second", "1/s", "more"),
    Figure("seconds_per_epoch", "per epoch", "s", "less"),
    Figure("wall_seconds", "training", "s", "less"),
    Figure("samples_per_second", "rate", "samples/s", "more", 4),
    Figure("utilisation", "utilisation", better="more"),
    Figure("idle_share", "idle", "%", "less"),
    Figure("averaging_share", "averaging", "%", "less"),
    Figure("rounds", "rounds", digits=0),
    Figure("anchor", "final anchor", "batches", digits=0),
    Figure("divergence", "final divergence"),
)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that arms have to reach. less: a smaller one is better. is_given: a person chose it; else it is the
    least good value that any arm ended with, so that all of them reached it."""

    metric: str
    value: float
    less: bool
    is_given: bool = False

    def is_met(self, value: float | None) -> bool:
        """Whether this value is good enough."""
        return value is not None and (value <= self.value if self.less else value >= self.value)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run's. loss_at_epoch, eval_at_epoch, metric_at_epoch: at the epoch that all arms have reached; the last one
    is the metric by which quality is judged. metric_at_end: that of the run's end. loss_per_second: (first - last
    epoch's training loss) / wall_seconds. seconds_to_target: of training, up to the end of the first epoch that reached
    it. idle_share, averaging_share, data_wait_share: of the time that all ranks accounted for.
    divergence: of the last averaging."""

    loss_at_epoch: float | None = None
    metric_at_epoch: float | None = None
    metric_at_end: float | None = None
    eval_at_epoch: dict[str, float] = {}
    seconds_to_target: float | None = None
    loss_per_second: float | None = None
    seconds_per_epoch: float | None = None
    wall_seconds: float | None = None
    samples_per_second: float | None = None
    utilisation: float | None = None
    idle_share: float | None = None
    averaging_share: float | None = None
    data_wait_share: float | None = None
    rounds: int | None = None
    anchor: int | None = None
    divergence: float | None = None


def figures_of(
    result: Result | None, epochs: Sequence[EpochPoint], *, epoch: int, metric: str, goal: Goal | None
) -> Figures:
    """The figures of a run that trained; of one without a result those of its epochs. epoch: from 1."""
    at = next((point for point in epochs if point.epoch == epoch), None)
    known = Figures(
        loss_at_epoch=None if at is None else at.loss,
        metric_at_epoch=None if at is None else reading(at, metric),
        eval_at_epoch={} if at is None else at.eval,
        seconds_to_target=_reached(epochs, goal),
        seconds_per_epoch=sum(point.wall_seconds for point in epochs) / len(epochs) if epochs else None,
    )
    return _so_far(known, epochs) if result is None else _whole(known, epochs, result, metric)


def _so_far(known: Figures, epochs: Sequence[EpochPoint]) -> Figures:
    """Of a run that goes on still, or whose controller is gone."""
    if not epochs:
        return known
    last = epochs[-1]
    return msgspec.structs.replace(
        known, loss_per_second=_gained(epochs, last.seconds), wall_seconds=last.seconds, anchor=last.anchor
    )


def _whole(known: Figures, epochs: Sequence[EpochPoint], result: Result, metric: str) -> Figures:
    spent = _spent(result)
    return msgspec.structs.replace(
        known,
        metric_at_end=result.train_loss if metric == _TRAIN_LOSS else result.eval.get(metric),
        loss_per_second=_gained(epochs, result.wall_seconds),
        wall_seconds=result.wall_seconds,
        samples_per_second=result.samples_per_second,
        utilisation=result.utilisation,
        idle_share=spent.get("idle"),
        averaging_share=spent.get("averaging"),
        data_wait_share=spent.get("data"),
        rounds=result.rounds,
        anchor=result.anchor,
        divergence=result.divergence_last if result.rounds and result.world_size > 1 else None,
    )


def reading(point: EpochPoint, metric: str) -> float | None:
    """A metric at an epoch's end: of its evaluation, or train_loss."""
    return point.loss if metric == _TRAIN_LOSS else point.eval.get(metric)


def shown(value: float | None, figure: Figure) -> str:
    """A value for people, without its unit; "-" for none, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if figure.unit == "%":
        return f"{value:.1%}"
    if figure.digits == 0:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    if abs(value) >= min(1000.0, 10.0**figure.digits):
        return f"{value:,.0f}"
    return f"{value:.{figure.digits}g}"


def _reached(epochs: Sequence[EpochPoint], goal: Goal | None) -> float | None:
    """When the goal was met. Where earlier epochs are not known any more, it may have been met in one of them."""
    for point in epochs if goal is not None else ():
        if goal is not None and goal.is_met(reading(point, goal.metric)):
            return None if point is epochs[0] and point.epoch > 1 else point.seconds
    return None


def _gained(epochs: Sequence[EpochPoint], wall_seconds: float) -> float | None:
    """Fall of the training loss per second, from the first epoch of all."""
    if len(epochs) < 2 or epochs[0].epoch > 1 or wall_seconds <= 0.0:
        return None
    first, last = epochs[0].loss, epochs[-1].loss
    return None if first is None or last is None else (first - last) / wall_seconds


def _spent(result: Result) -> Mapping[str, float]:
    """Parts of the ranks' accounted time."""
    sums = {
        "compute": sum(rank.compute_seconds for rank in result.per_rank),
        "data": sum(rank.data_wait_seconds for rank in result.per_rank),
        "averaging": sum(rank.averaging_seconds for rank in result.per_rank),
        "idle": sum(rank.idle_seconds for rank in result.per_rank),
    }
    whole = sum(sums.values())
    return {name: part / whole for name, part in sums.items()} if whole > 0.0 else {}
