"""Sharing whole things out: largest remainder, ties to the lower rank. Every split sums to its total."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["by_ratios", "equal", "final_window", "is_final", "largest_remainder", "proportional"]


def largest_remainder(weights: Sequence[float], total: int) -> tuple[int, ...]:
    """total shared in proportion to weights (>= 0, finite; all zero: equally)."""
    ...


def equal(num_ranks: int, total: int) -> tuple[int, ...]:
    """total shared equally."""
    ...


def proportional(ms: Sequence[float], total: int) -> tuple[int, ...]:
    """total shared by speed: 1 / (ms per batch)."""
    ...


def by_ratios(ratios: Sequence[float], total: int) -> tuple[int, ...]:
    """total shared by the user's partition_ratios."""
    ...


def is_final(quotas: Sequence[int], owed: int) -> bool:
    """True when what an epoch still owes goes out in one window: less than sum(quotas) + living ranks."""
    ...


def final_window(quotas: Sequence[int], owed: int) -> tuple[int, ...]:
    """The epoch's last window: all that is owed, in proportion to the quotas."""
    ...
