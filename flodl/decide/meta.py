"""The meta-controller: nudges the anchor down when the learning rate drops or divergence is sustained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.decide.phase import Phase
from flodl.decide.verdict import Nudge, Verdict
from flodl.spec.job import MetaConfig

__all__ = ["MetaController"]


class MetaController:
    """Observes once per cycle, after the guard and before its verdict is applied."""

    def __init__(self, config: MetaConfig) -> None: ...

    def observe(
        self, anchor: int, learning_rate: float, verdict: Verdict, phase: Phase, divergence: float
    ) -> Nudge | None:
        """Record the cycle; a nudge where one is due. phase: ElChe's `cycle_phase`. anchor: before the commit."""
        ...

    def is_settled(self, phase: Phase) -> bool:
        """True when anchor and divergence have stopped moving (all windows full, phase Stable or later)."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Plain state."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot over."""
        ...
