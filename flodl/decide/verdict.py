"""What may be said about a proposal: a guard's verdict, a meta-controller's nudge. Frozen, each with its reason."""

from __future__ import annotations

import msgspec

__all__ = ["Nudge", "NudgeDown", "Stable", "SuppressGrowth", "Verdict"]


class Stable(msgspec.Struct, frozen=True):
    """The replicas agree well enough: whatever was proposed may be done."""

    reason: str = "divergence is stable"


class SuppressGrowth(msgspec.Struct, frozen=True):
    """The windows must not become longer; a shrink is welcome."""

    reason: str = "divergence is rising"


class NudgeDown(msgspec.Struct, frozen=True):
    """The windows must become shorter at once: anchor x factor (0..1; not finite: the anchor stays)."""

    factor: float
    reason: str = "divergence is running away"


Verdict = Stable | SuppressGrowth | NudgeDown


class Nudge(msgspec.Struct, frozen=True):
    """The meta-controller's wish: anchor x factor (0.1..0.95), whatever the guard says."""

    factor: float
    reason: str = ""
