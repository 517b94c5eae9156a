"""How long a batch takes on a rank: single readings, and the short memory that smooths them. Durations are told."""

from __future__ import annotations

import msgspec

__all__ = ["Reading", "TrustWindow", "usable"]


class Reading(msgspec.Struct, frozen=True):
    """What one rank's window took. batches: really run (never the planned count). wall_ms: for all of them."""

    batches: int
    wall_ms: float

    @property
    def ms(self) -> float:
        """Milliseconds per batch."""
        return self.wall_ms / self.batches


def usable(batches: int, wall_ms: float, *, final_window: bool = False) -> Reading | None:
    """The reading that a window gives, None where it gives none (no batch, no time, one batch in a final window)."""
    ...


class TrustWindow(msgspec.Struct):
    """One rank's last readings, milliseconds per batch, and their plain mean."""

    values: list[float] = []
    streak: int = 0
    misses: int = 0
