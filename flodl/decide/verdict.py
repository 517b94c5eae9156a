"""What may be said about a proposal: a guard's verdict, a meta-controller's nudge. Frozen, each with its reason."""

from __future__ import annotations

import msgspec

__all__ = ["Nudge", "NudgeDown", "Stable", "SuppressGrowth", "Verdict", "named", "objections"]


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


def named(said: Verdict | Nudge) -> str:
    """The reason; of what is not Stable with its name, by which `objections` finds it again."""
    return said.reason if isinstance(said, Stable) else f"{type(said).__name__}: {said.reason}"


_SIGNS = tuple(f"{kind.__name__}: " for kind in (SuppressGrowth, NudgeDown, Nudge))
NOT_TAKEN, NUDGED = " is not taken: ", "nudge "


def objections(reason: str) -> tuple[str, ...]:
    """Of a window's reason the sentences that tell of verdicts other than Stable, of nudges, and of what they did."""
    told = reason.partition("(")[2].removesuffix(")").split("; ")
    return tuple(text for text in told if text.startswith((*_SIGNS, NUDGED)) or NOT_TAKEN in text)
