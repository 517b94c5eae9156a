"""Numbers with their nouns, as people read them: 1 epoch, 2 epochs."""

from __future__ import annotations

__all__ = ["all_are", "counted"]


def counted(number: int, one: str, many: str = "") -> str:
    """``counted(2, "batch", "batches")`` is "2 batches"; without `many` an s is put behind."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def all_are(number: int, one: str, what: str) -> str:
    """``all_are(2, "rank", "ready")`` is "all 2 ranks are ready"; of one, "the one rank is ready"."""
    return f"the one {one} is {what}" if number == 1 else f"all {number} {one}s are {what}"
