"""How many batches each rank runs between two averagings: pure arithmetic on the anchor and the smoothed readings.

The order is fixed: target -> dead zone -> lead -> cap -> slack. Each step takes the step before it and nothing else,
so none is applied twice or lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from flodl.decide.margins import above, ceil_exact, half_up

__all__ = ["Quotas", "capped", "settle", "targets", "utilisation", "with_slack", "within_lead"]

MAX_RATIO = 64.0  # a sub-millisecond sample would otherwise order 10^4 times the anchor
SAME_SPEED_MS = 1e-6
DEAD_ZONE = 0.05


class Quotas(msgspec.Struct, frozen=True):
    """One window's plan. by_rank: batches, each >= 1, in rank order. cap_binding: the epoch holds no more."""

    by_rank: dict[int, int]
    cap_binding: bool
    reason: str


def targets(anchor: int, ms: Mapping[int, float | None], slow_ms: float | None) -> dict[int, int]:
    """The quotas that keep everybody busy as long as `anchor` batches of slow_ms each.

    ms: rank -> milliseconds per batch, None while unknown. slow_ms: the anchor rank's. Unknown ranks get the anchor.
    """
    if slow_ms is None:
        return dict.fromkeys(ms, anchor)
    return {
        rank: anchor
        if value is None or abs(value - slow_ms) < SAME_SPEED_MS
        else half_up(anchor * min(slow_ms / value, MAX_RATIO)) or 1
        for rank, value in ms.items()
    }


def settle(old: int | None, new: int) -> int:
    """The dead zone: the old quota, unless it would change by more than 5 %."""
    if old is None or above(abs(new - old), DEAD_ZONE * old):
        return new
    return old


def within_lead(quotas: Mapping[int, int], max_batch_diff: int | None) -> dict[int, int]:
    """No quota exceeds the smallest by more than max_batch_diff (None: no bound, 0: lockstep)."""
    if max_batch_diff is None or not quotas:
        return dict(quotas)
    limit = min(quotas.values()) + max_batch_diff
    return {rank: min(quota, limit) for rank, quota in quotas.items()}


def capped(quotas: Mapping[int, int], epoch_batches: int) -> dict[int, int]:
    """Quotas that fit into an epoch: scaled by floor (at least 1), the remainder to the largest, of equals to who had
    the largest before (where all are 1 the last may be the slowest), the last of equals there.

    A remainder below zero (many quotas raised to 1) is taken from the largest too. More ranks than batches cannot
    fit: then every quota is 1.
    """
    total = sum(quotas.values())
    if total <= epoch_batches:
        return dict(quotas)
    scaled = {rank: max(1, quota * epoch_batches // total) for rank, quota in quotas.items()}
    largest = max(scaled, key=lambda rank: (scaled[rank], quotas[rank], rank))
    scaled[largest] = max(1, scaled[largest] + epoch_batches - sum(scaled.values()))
    return scaled


def with_slack(
    quotas: Mapping[int, int], ms: Mapping[int, float | None], slack_ms: Mapping[int, float]
) -> dict[int, int]:
    """Room for callbacks: as many batches less as their time is worth, at least 1 left.

    Comes after the cap, which would otherwise shrink the room together with the quotas.
    """
    if not slack_ms:
        return dict(quotas)
    return {rank: _slackened(quota, ms.get(rank), slack_ms.get(rank, 0.0)) for rank, quota in quotas.items()}


def _slackened(quota: int, ms: float | None, slack_ms: float) -> int:
    if ms is None or not math.isfinite(slack_ms) or slack_ms <= 0:
        return quota
    return max(1, quota - ceil_exact(slack_ms / ms))


def utilisation(quotas: Mapping[int, int], ms: Mapping[int, float | None]) -> float:
    """Batches done over batches possible, 0..1, while everybody waits for the last: sum(q) / (T * sum(1/ms)).

    Over the ranks that are known; 1 where none is.
    """
    known = {rank: value for rank, value in ms.items() if value is not None}
    if not known:
        return 1.0
    longest = max([quotas[rank] * value for rank, value in known.items()])
    possible = longest * math.fsum([1 / value for value in known.values()])
    return sum([quotas[rank] for rank in known]) / possible
