"""Guards: from a round's divergence to a verdict on growth. Small policies: one method, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from flodl.decide.verdict import Verdict
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig

__all__ = ["Guard", "make_guard"]


class Guard(Protocol):
    """Observes one accepted round, answers with a verdict. is_stored: its state belongs into a checkpoint bundle."""

    is_stored: bool

    def observe(self, divergence: float, steps_sum: int, k_max: int) -> Verdict:
        """divergence: the round's value (max over ranks). steps_sum, k_max: batches of all ranks, of the busiest."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Plain state."""
        ...

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot of the same kind of guard over."""
        ...


def make_guard(config: GuardConfig, elche: ElCheConfig) -> Guard:
    """The guard that the configuration names, with its mode-dependent defaults."""
    ...
