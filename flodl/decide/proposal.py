"""Which anchor ElChe would like next. A proposal changes nothing: only a commit with a verdict does.

Growth and shrink have hysteresis between them (target and half of it), and neither follows one noisy round.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flodl.decide.margins import above, ceil_exact
from flodl.decide.quota import targets, utilisation, within_lead

__all__ = ["Proposal", "Situation", "propose"]

MAX_GROWTH = 2
SMALLEST_GROWTH = 0.05
SHRINK_PART = 20
POOR_UTILISATION = 0.90
GOOD_UTILISATION = 0.98
WORTHWHILE_GAIN = 0.02


class Proposal(msgspec.Struct, frozen=True):
    """A wish to move the anchor. present: the anchor it was made for."""

    present: int
    anchor: int
    reason: str

    @property
    def grows(self) -> bool:
        """True where the windows would become longer."""
        return self.anchor > self.present


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a proposal is made from.

    overhead: exposed averaging time / longest compute at the planned quotas. target: the overhead aimed at.
    low, high: bounds of the anchor. floor: what a shrink may not go below (cpu_async: one round's length).
    no_growth, no_shrink: why not, "" where it may. ms: rank -> ms per batch. slow_ms: the anchor rank's.
    epoch_batches: one epoch of all ranks, None while unknown.
    """

    anchor: int
    overhead: float
    target: float
    low: int
    high: int
    ms: Mapping[int, float | None]
    slow_ms: float | None
    floor: int = 1
    no_growth: str = ""
    no_shrink: str = ""
    max_batch_diff: int | None = None
    epoch_batches: int | None = None

    def quotas(self, anchor: int) -> dict[int, int]:
        """The rounded quotas that another anchor would give."""
        return within_lead(targets(anchor, self.ms, self.slow_ms), self.max_batch_diff)

    def utilisation(self, anchor: int) -> float:
        """What they would make of the devices."""
        return utilisation(self.quotas(anchor), self.ms)

    def fits(self, anchor: int) -> bool:
        """True where they would fit into an epoch."""
        return self.epoch_batches is None or sum(self.quotas(anchor).values()) <= self.epoch_batches


def propose(now: Situation) -> tuple[Proposal | None, str]:
    """The proposal and why; or None and why the anchor is held."""
    shown = f"overhead {now.overhead:.1%}, target {now.target:.1%}"
    if above(now.overhead, now.target):
        anchor = _grown(now)
        if now.no_growth:
            return None, f"hold {now.anchor}: {shown}, but {now.no_growth}"
        if anchor is None:
            return None, f"hold {now.anchor}: {shown}, but a growth of 5 % or less within bounds is not worth it"
        return _proposal(now, anchor, shown)
    present = now.utilisation(now.anchor)
    if not now.no_growth and above(POOR_UTILISATION, present):
        anchor = _better_used(now, present)
        if anchor is not None:
            return _proposal(now, anchor, f"rounded quotas use the devices to {present:.1%} only")
    if above(now.target / 2, now.overhead):
        return _shrink(now, present, shown)
    return None, f"hold {now.anchor}: {shown}"


def _proposal(now: Situation, anchor: int, why: str) -> tuple[Proposal, str]:
    verb = "grow" if anchor > now.anchor else "shrink"
    reason = f"{verb} {now.anchor} -> {anchor}: {why}"
    return Proposal(now.anchor, anchor, reason), reason


def _grown(now: Situation) -> int | None:
    wanted = min(ceil_exact(now.anchor * now.overhead / now.target), MAX_GROWTH * now.anchor)
    # After a nudge below it, the lower bound may lift the anchor by more than the doubling.
    anchor = min(max(wanted, now.low), now.high)
    return anchor if above(anchor - now.anchor, SMALLEST_GROWTH * now.anchor) else None


def _better_used(now: Situation, present: float) -> int | None:
    """The anchor up to the double that uses the devices best, the smallest of equals, if that is worth the move."""
    best, gain = None, WORTHWHILE_GAIN - 1e-9
    for anchor in range(now.anchor + 1, min(MAX_GROWTH * now.anchor, now.high) + 1):
        better = now.utilisation(anchor) - present
        if above(better, gain) and now.fits(anchor):
            best, gain = anchor, better
    return best


def _shrink(now: Situation, present: float, shown: str) -> tuple[Proposal | None, str]:
    if now.no_shrink:
        return None, f"hold {now.anchor}: {shown}, but {now.no_shrink}"
    # No dead zone: a step of anchor // 20 is 5 % at most, and anchors above 20 must be able to come down.
    anchor = max(now.anchor - max(1, now.anchor // SHRINK_PART), now.low, now.floor)
    if anchor >= now.anchor:
        return None, f"hold {now.anchor}: {shown}, and no shorter window is allowed"
    used = now.utilisation(anchor)
    if above(GOOD_UTILISATION, used) and above(present, used):
        return None, f"hold {now.anchor}: {shown}, but at {anchor} rounded quotas use the devices to {used:.1%} only"
    return _proposal(now, anchor, shown)
