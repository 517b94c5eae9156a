"""Comparisons and roundings as judgement means them: strict, with one tolerance, and never banker's."""

from __future__ import annotations

import math

__all__ = ["TOLERANCE", "above", "ceil_exact", "half_up"]

TOLERANCE = 1e-9  # what floating point may be off by before a comparison counts


def above(value: float, limit: float) -> bool:
    """True when value > limit by more than rounding error: neither of 0.3 and 0.1 + 0.2 is above the other."""
    return value > limit and not math.isclose(value, limit, rel_tol=TOLERANCE)


def ceil_exact(value: float) -> int:
    """The ceiling, where 15.000000000000002 counts as 15."""
    return math.ceil(value - TOLERANCE)


def half_up(value: float) -> int:
    """The nearest whole number, halves upward (Python's round goes to the even one)."""
    return math.floor(value + 0.5)
