"""Which bundles of a run are worth keeping beside the newest ones."""

from __future__ import annotations

from collections.abc import Mapping

from flodl.spec.stop import MetricName, Mode, wants_less
from flodl.spec.value import PositiveInt, Value

__all__ = ["BestConfig"]


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
