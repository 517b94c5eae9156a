"""Averaging weights: how much each rank's contribution counts in a round."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["mass", "shares"]


def mass(count: int, gamma: float) -> float:
    """count^gamma, and 0 for a rank that did not move, whatever gamma is (0^0 would let it vote)."""
    ...


def shares(masses: Sequence[float]) -> tuple[float, ...]:
    """mass / sum of masses; all 0 where nobody moved."""
    ...
