"""When a run ends before its last epoch: limits of time and samples, a goal, and the end of progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.duration import Duration, TimeOfDay, seconds
from flodl.spec.value import NonNegative, PositiveInt, Value

__all__ = ["TRAIN", "EarlyConfig", "MetricName", "Mode", "StopConfig", "TargetConfig", "wants_less"]

TRAIN = "train_"  # before the name of a figure of an epoch's own training: train_loss
_LESS_IS_BETTER = ("loss", "error", "perplexity", "bits", "mse", "mae")

Mode = Literal["auto", "min", "max"]
MetricName = Annotated[str, Meta(min_length=1, description="the name of a figure, such as accuracy")]


def wants_less(metric: str, mode: Mode) -> bool:
    """True where a smaller figure is the better one. auto: by the name."""
    if mode != "auto":
        return mode == "min"
    return any(word in metric.lower() for word in _LESS_IS_BETTER)


class TargetConfig(Value, frozen=True, kw_only=True):
    """End the run when `metric` reaches `value`. metric null: off."""

    metric: MetricName | None = None
    value: float | None = None
    mode: Mode = "auto"

    def problems(self, key: str) -> Iterator[Problem]:
        """Half a goal."""
        if self.metric is not None and self.value is None:
            yield Problem(key=f"{key}.value", value="null", constraint=f"{self.metric} has nothing to reach",
                          remedy=f"give {key}.value a number")  # fmt: skip
        if self.metric is None and self.value is not None:
            yield Problem(key=f"{key}.metric", value="null", constraint=f"nobody knows what shall reach {self.value:g}",
                          remedy="name a figure, such as accuracy")  # fmt: skip


class EarlyConfig(Value, frozen=True, kw_only=True):
    """End the run when `metric` has not got better by more than `min_delta` for `patience` readings. null: off."""

    metric: MetricName | None = None
    patience: PositiveInt = 5
    min_delta: NonNegative = 0.0
    mode: Mode = "auto"


class StopConfig(Value, frozen=True, kw_only=True):
    """Rules that end a run in order (status stopped, exit 0). null and false: no such rule."""

    max_time: Duration | None = None
    at: TimeOfDay | None = None
    max_samples: PositiveInt | None = None
    target: TargetConfig = TargetConfig()
    early: EarlyConfig = EarlyConfig()
    when_settled: bool = False

    def problems(self, key: str) -> Iterator[Problem]:
        """A limit that leaves no time at all."""
        if self.max_time is not None and not seconds(self.max_time):
            yield Problem(key=f"{key}.max_time", value=str(self.max_time), constraint="leaves no time to train",
                          remedy="give it more than 0 seconds, or null for no limit")  # fmt: skip

    def without_figures(self) -> StopConfig:
        """The limits of time and samples alone."""
        return self.replace(target=TargetConfig(), early=EarlyConfig())

    @property
    def metrics(self) -> dict[str, str]:
        """Key of a rule -> the figure that it follows."""
        found = {"stop.target.metric": self.target.metric, "stop.early.metric": self.early.metric}
        return {key: name for key, name in found.items() if name is not None}
