"""What is known of everybody's speed, and who sets the pace: the slowest known rank, changed reluctantly."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from flodl.decide.margins import above
from flodl.decide.readings import MAX_MISSES, Reading, TrustWindow

__all__ = ["Speeds", "elect", "slowest"]

MARGIN = 0.10


def slowest(ms: Mapping[int, float]) -> int | None:
    """The rank with most milliseconds per batch, the lower of equals; None where none is known."""
    most = max(ms.values(), default=None)
    return min([rank for rank, value in ms.items() if value == most], default=None)


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


class Speeds(msgspec.Struct, dict=True):
    """Trust windows of the living ranks, in order of rank, and the anchor rank (None before any reading).

    A report changes the windows once and their means are asked for many times, so the means are kept between changes.
    """

    windows: dict[int, TrustWindow]
    anchor_rank: int | None = None

    @cached_property
    def ms(self) -> dict[int, float | None]:
        """Smoothed milliseconds per batch, None while unknown."""
        return {rank: window.mean for rank, window in self.windows.items()}

    @cached_property
    def known(self) -> dict[int, float]:
        """The same, of those that are known."""
        return {rank: mean for rank, mean in self.ms.items() if mean is not None}

    @property
    def slow_ms(self) -> float | None:
        """The anchor rank's value."""
        return None if self.anchor_rank is None else self.ms[self.anchor_rank]

    @property
    def fastest(self) -> int | None:
        """The rank with the lowest value, the lower of equals."""
        known = self.known
        return min(known, key=lambda rank: (known[rank], rank), default=None)

    def take(self, readings: Mapping[int, Reading]) -> dict[int, Reading]:
        """Take a report in; the readings that count. A living rank without one has missed the report."""
        counted: dict[int, Reading] = {}
        for rank, window in self.windows.items():
            reading = readings.get(rank)
            if reading is not None and reading.counts:
                window.add(reading.ms)
                counted[rank] = reading
            else:
                window.miss()
        self._forget()
        return counted

    def elect(self, *, pinned: int | None, may_swap: bool) -> str:
        """Choose the anchor rank after a report; why, "" where nothing changes."""
        present, known = self.anchor_rank, self.known
        if present is not None and known and present not in known and self.windows[present].misses >= MAX_MISSES:
            present = None  # a silent rank must not freeze Warmup for ever, not even a pinned one
        self.anchor_rank, why = elect(present, known, pinned=pinned, may_swap=may_swap)
        return why

    def remove(self, rank: int, *, pinned: int | None) -> None:
        """A rank is gone; the slowest known of the others takes the anchor rank's place at once."""
        self.windows.pop(rank, None)
        self._forget()
        if self.anchor_rank == rank:
            self.anchor_rank = elect(None, self.known, pinned=pinned, may_swap=False)[0]

    def add(self, rank: int) -> None:
        """A rank joins; nothing is known of it."""
        self.windows = dict(sorted({**self.windows, rank: TrustWindow()}.items()))
        self._forget()

    def _forget(self) -> None:
        vars(self).pop("ms", None)
        vars(self).pop("known", None)
