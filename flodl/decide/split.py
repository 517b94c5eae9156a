"""Sharing whole things out: largest remainder, ties to the lower rank. Every split sums to its total, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["by_ratios", "equal", "final_window", "is_final", "largest_remainder", "proportional"]

_DIGITS = 10**9  # remainders closer than a billionth are a tie: 1/3 of 1000 has no exact float


def largest_remainder(weights: Sequence[float], total: int) -> tuple[int, ...]:
    """total (>= 0) shared in proportion to weights (finite, >= 0; all zero: equally). A weight of 0 gets nothing
    beside others.

    Raises ValueError where there is nobody to share among, or a weight is negative or not finite.
    """
    if not weights or any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise ValueError(f"weights must be finite numbers >= 0, at least one of them: {list(weights)}")
    quotients = [weight.as_integer_ratio() for weight in weights]
    scale = math.lcm(*[below for _, below in quotients])
    exact = [above * (scale // below) for above, below in quotients]
    whole = sum(exact)
    if not whole:
        exact, whole = [1] * len(exact), len(exact)
    parts = [weight * total // whole for weight in exact]
    rest = [(weight * total % whole * _DIGITS * 2 + whole) // (2 * whole) for weight in exact]  # in _DIGITS, rounded
    order = sorted(range(len(parts)), key=lambda i: (-rest[i], not exact[i], i))
    for i in order[: total - sum(parts)]:
        parts[i] += 1
    return tuple(parts)


def equal(num_ranks: int, total: int) -> tuple[int, ...]:
    """total shared equally."""
    return largest_remainder([1.0] * num_ranks, total)


def proportional(ms: Sequence[float], total: int) -> tuple[int, ...]:
    """total shared by speed: in proportion to 1 / (milliseconds per batch). Raises ValueError where one is not > 0."""
    if any(value <= 0 for value in ms):
        raise ValueError(f"milliseconds per batch must be > 0: {list(ms)}")
    return largest_remainder([1 / value for value in ms], total)


def by_ratios(ratios: Sequence[float], total: int) -> tuple[int, ...]:
    """total shared by the user's partition_ratios, which need not sum to 1; all zero means equally."""
    return largest_remainder(ratios, total)


def is_final(quotas: Sequence[int], owed: int) -> bool:
    """True when all that an epoch still owes goes out in one window: fewer than sum(quotas) + living ranks."""
    return owed < sum(quotas) + len(quotas)


def final_window(quotas: Sequence[int], owed: int) -> tuple[int, ...]:
    """The epoch's last window: all that is owed, in proportion to the quotas; a rank may get nothing."""
    return largest_remainder(quotas, owed)
