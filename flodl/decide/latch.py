"""The growth latch and the overshoot allowance: two small counters that verdicts turn."""

from __future__ import annotations

import msgspec

from flodl.decide.verdict import Stable, Verdict

__all__ = ["GrowthLatch", "Overshoot"]

STABLE_TO_UNLATCH = 5
MIN_OVERSHOOT = 3
MAX_OVERSHOOT = 15


class GrowthLatch(msgspec.Struct):
    """One verdict that is not Stable switches growth off, five Stable ones in a row switch it on again."""

    is_off: bool = False
    streak: int = 0

    def observe(self, verdict: Verdict) -> None:
        """Count a verdict."""
        if not isinstance(verdict, Stable):
            self.is_off = True
            self.streak = 0
        elif self.is_off:
            self.streak += 1
            self.is_off = self.streak < STABLE_TO_UNLATCH


class Overshoot(msgspec.Struct):
    """Batches past the planned point in cpu_async: 3, one more per Stable up to 15, back to 3 on a nudge."""

    batches: int = MIN_OVERSHOOT

    def widen(self) -> None:
        """A Stable verdict, and no nudge in that cycle."""
        self.batches = min(self.batches + 1, MAX_OVERSHOOT)

    def reset(self) -> None:
        """A nudge."""
        self.batches = MIN_OVERSHOOT
