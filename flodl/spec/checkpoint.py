"""What a run leaves to go on from, how often, and what it goes on from itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from flodl.spec.stop import MetricName, Mode, wants_less
from flodl.spec.value import Positive, PositiveInt, Value

__all__ = ["BestConfig", "CheckpointConfig", "SaveReason"]

SaveReason = Literal[
    "checkpoint",
    "best",
    "final",
    "graceful_shutdown",
    "nonfinite",
    "interrupted",
    "max_failure_exceeded",
    "single_survivor",
    "all_ranks_lost",
    "reduce_stall",
]


class BestConfig(Value, frozen=True, kw_only=True):
    """Keep the `keep` bundles whose evaluation gave the best `metric`. null: none is kept for its figures."""

    metric: MetricName | None = None
    mode: Mode = "auto"
    keep: PositiveInt = 1

    def goodness(self, figures: Mapping[str, float]) -> float | None:
        """How good figures are: more is better. None where the metric is not among them."""
        found = None if self.metric is None else figures.get(self.metric)
        if found is None or self.metric is None:
            return None
        return -found if wants_less(self.metric, self.mode) else found


class CheckpointConfig(Value, frozen=True, kw_only=True):
    """What a run leaves to go on from.

    every_epochs, every_minutes: null: not so. keep: of the newest bundles; null: all. resume_from: a run's folder, or
    that of its checkpoints. resume: exact (the newest bundle and no other) | latest_valid (the newest that is whole).
    """

    stem: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="a file name of letters, digits, dots and dashes"),
    ] = "model"
    every_epochs: PositiveInt | None = 1
    every_minutes: Positive | None = None
    keep: PositiveInt | None = 2
    best: BestConfig = BestConfig()
    resume_from: Annotated[str, Meta(min_length=1)] | None = None
    resume: Literal["exact", "latest_valid"] = "exact"
