"""Who sets the pace: the slowest rank that is known, changed reluctantly."""

from __future__ import annotations

from collections.abc import Mapping

from flodl.decide.margins import above

__all__ = ["elect", "slowest"]

MARGIN = 0.10


def slowest(ms: Mapping[int, float]) -> int | None:
    """The rank with most milliseconds per batch, the lower of equals; None where none is known."""
    return min(ms, key=lambda rank: (-ms[rank], rank), default=None)


def elect(
    present: int | None, ms: Mapping[int, float], *, pinned: int | None, may_swap: bool
) -> tuple[int | None, str]:
    """The anchor rank from now on, and why ("" where nothing changes).

    present: the one so far, None where there is none or it has been silent for too long. ms: the ranks that are
    known. pinned: the user's choice; it wins whenever it is known, also after a silence. may_swap: from Stable on.
    """
    if pinned in ms:
        return pinned, "" if pinned == present else f"rank {pinned} is the anchor rank: configured"
    candidate = slowest(ms)
    if candidate is None or candidate == present:
        return present, ""
    shown = f"{ms[candidate]:.3g} ms per batch"
    if present is None:
        return candidate, f"rank {candidate} is the anchor rank: slowest known, {shown}"
    if may_swap and present in ms and above(ms[candidate], ms[present] * (1 + MARGIN)):
        return candidate, f"rank {candidate} is the anchor rank: {shown}, over 10 % more than rank {present}"
    return present, ""
