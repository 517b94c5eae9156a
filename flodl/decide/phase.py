"""How far ElChe trusts its readings: four phases, ordered, never backwards, told by the number of calibrations."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Phase", "phase_after"]


class Phase(IntEnum):
    """Ordered: ``phase >= Phase.STABLE`` is the gate of anchor proposals."""

    PROBE = 0
    WARMUP = 1
    STABLE = 2
    MATURE = 3

    @property
    def label(self) -> str:
        """The phase as records and terminals spell it: probe, warmup, stable, mature."""
        return self.name.lower()


# Calibrations after which each phase begins. Distinct and rising, so one calibration is at most one hop.
_BEGINS = ((20, Phase.MATURE), (5, Phase.STABLE), (1, Phase.WARMUP))


def phase_after(calibrations: int) -> Phase:
    """The phase once that many calibrations have been counted."""
    return next((phase for begin, phase in _BEGINS if calibrations >= begin), Phase.PROBE)
