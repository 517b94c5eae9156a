"""Which anchor ElChe would like next. A proposal changes nothing: only a commit with a verdict does."""

from __future__ import annotations

import msgspec

__all__ = ["Proposal"]


class Proposal(msgspec.Struct, frozen=True):
    """A wish to move the anchor. present: the anchor it was made for; a proposal for another one is stale."""

    present: int
    anchor: int
    reason: str

    @property
    def grows(self) -> bool:
        """True where the windows would become longer."""
        return self.anchor > self.present
