"""Averaging weights: how much each rank's contribution counts in a round. Counts are batches, or samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["mass", "shares"]

# Masses stay finite and above zero for every gamma: a message holds no infinity, and a rank that moved has a vote.
LARGEST = 1e300
SMALLEST = 1e-300


def mass(count: int, gamma: float) -> float:
    """count^gamma, and 0 for a rank that did not move, whatever gamma is (0^0 = 1 would let it vote)."""
    if count <= 0:
        return 0.0
    try:
        return min(max(float(count) ** gamma, SMALLEST), LARGEST)
    except OverflowError:
        return LARGEST


def shares(masses: Sequence[float]) -> tuple[float, ...]:
    """mass / sum of masses, in order; all 0 where nobody moved (such a round changes nothing)."""
    largest = max(masses, default=0.0)
    if largest <= 0:
        return (0.0,) * len(masses)
    scaled = [value / largest for value in masses]  # the sum of masses itself may overflow
    total = math.fsum(scaled)
    return tuple(value / total for value in scaled)
