"""How long a batch takes on a rank: single readings, and the short memory that smooths them.

Durations are told by the ranks, and all ranks are told of on one scale (compute only): scales mixed between ranks
once gave the slow one most of the work.
"""

from __future__ import annotations

import math

import msgspec

from flodl.decide.margins import above

__all__ = ["MAX_MISSES", "MedianOfThree", "Reading", "TrustWindow"]

MAX_READINGS = 5
MAX_MISSES = 5
OFF_THE_MEAN = 0.25


class Reading(msgspec.Struct, frozen=True):
    """What one rank's window took. batches: really run (never the planned count). wall_ms: for all of them."""

    batches: int
    wall_ms: float

    @property
    def counts(self) -> bool:
        """False for what says nothing about speed: no batch, no time, no number."""
        return self.batches > 0 and math.isfinite(self.wall_ms) and self.wall_ms / self.batches > 0

    @property
    def ms(self) -> float:
        """Milliseconds per batch."""
        return self.wall_ms / self.batches


class TrustWindow(msgspec.Struct):
    """One rank's last five readings, milliseconds per batch, and their plain mean.

    streak: +1 or -1 after a reading more than 25 % above or below the mean held before it came, else 0.
    misses: reports in a row without a reading; a miss neither feeds nor breaks the streak.
    """

    values: list[float] = []
    streak: int = 0
    misses: int = 0

    @property
    def mean(self) -> float | None:
        """The smoothed value, None while nothing is known."""
        return math.fsum(self.values) / len(self.values) if self.values else None

    def add(self, ms: float) -> None:
        """Take a reading in; the second of two that are off on one side drops what is older than the two.

        So a real change of speed is seen in two or three windows, while one outlier only moves the mean.
        """
        side = self._side(ms)
        self.misses = 0
        self.values = [*self.values, ms][-MAX_READINGS:]
        if side and side == self.streak:
            self.values = self.values[-2:]
            side = 0  # a drop starts a new streak
        self.streak = side

    def miss(self) -> None:
        """A report without a usable reading; the fifth in a row clears what was known."""
        self.misses += 1
        if self.misses >= MAX_MISSES:
            self.values = []
            self.streak = 0

    def _side(self, ms: float) -> int:
        mean = self.mean
        if mean is None or not above(abs(ms - mean), OFF_THE_MEAN * mean):
            return 0
        return 1 if ms > mean else -1


class MedianOfThree(msgspec.Struct):
    """The median of a duration's last three values: a round in twenty that takes five times as long moves nothing."""

    values: list[float] = []

    def add(self, ms: float) -> None:
        """Take a duration in; what is no duration is left out."""
        if math.isfinite(ms) and ms >= 0:
            self.values = [*self.values, ms][-3:]

    @property
    def median(self) -> float:
        """The middle one; of two the lower; 0 of none."""
        return sorted(self.values)[(len(self.values) - 1) // 2] if self.values else 0.0
