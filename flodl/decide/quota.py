"""How many batches each rank runs between two averagings: pure arithmetic on the anchor and the smoothed readings."""

from __future__ import annotations

import msgspec

__all__ = ["Quotas"]


class Quotas(msgspec.Struct, frozen=True):
    """One window's plan. by_rank: batches, each >= 1, in rank order. cap_binding: the epoch holds no more."""

    by_rank: dict[int, int]
    cap_binding: bool
    reason: str
