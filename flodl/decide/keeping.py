"""What is said of bundles: parts of `messages`, where everybody finds them."""

from __future__ import annotations

from typing import Any

from flodl.decide.plain import Plain
from flodl.spec.checkpoint import SaveReason

__all__ = ["BundleKept", "Resumed", "SaveBegun"]


class BundleKept(Plain, frozen=True, kw_only=True, tag=True):
    """What came of the save of a round by a rank. error: why there is no bundle of it, "" where it is in place.

    The rank tells what it could not send, the record tells the rest. remarks: what went wrong and does it no harm.
    """

    at: float
    rank: int
    round: int
    error: str = ""
    remarks: tuple[str, ...] = ()


class Resumed(Plain, frozen=True, kw_only=True, tag=True):
    """The run goes on from a bundle. snapshot: of the coordinator that had it saved. origin: its meta file."""

    at: float
    round: int
    origin: str
    snapshot: dict[str, Any]


class SaveBegun(Plain, frozen=True, kw_only=True, tag=True):
    """The order beside it has `rank` save what round `round` has come to. Not sent to ranks: it goes to the record.

    global_step: batches of all ranks so far. evaluates: the same rank evaluates the same weights.
    """

    rank: int
    round: int
    generation: int
    epoch: int
    global_step: int
    why: SaveReason
    evaluates: bool = False
    reason: str
