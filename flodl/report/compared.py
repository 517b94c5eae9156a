"""What stands in a comparison: arms with their figures, and groups of arms that differ in nothing but their seed."""

from __future__ import annotations

import msgspec

from flodl.report.arm import Arm
from flodl.report.figures import Figures

__all__ = ["Compared", "Group", "Mean"]


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the arms of a group. spread: the sample's standard deviation, null for one arm."""

    mean: float
    spread: float | None
    arms: int


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Arms that differ in nothing but their seed. ended_well: how many of them count. figures: name -> mean."""

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    ended_well: int
    figures: dict[str, Mean]


class Compared(Arm, frozen=True, kw_only=True):
    """An arm with its group's name and its figures (null where it trained nothing)."""

    group: str
    figures: Figures | None
