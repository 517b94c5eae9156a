"""What is said of replacements: parts of `messages`, where everybody finds them."""

from __future__ import annotations

from flodl.decide.plain import Plain

__all__ = ["Dismiss", "Restart"]


class Restart(Plain, frozen=True, kw_only=True, tag=True):
    """Start another process for a dead rank's device. Not sent to ranks: the world has its agent do it.

    incarnation: 1 for the first replacement; nothing that an earlier process of this rank says is heard any more.
    """

    rank: int
    incarnation: int
    reason: str


class Dismiss(Plain, frozen=True, kw_only=True, tag=True):
    """End the process of a rank that is not among the living: a replacement that cannot be used, or is not needed any
    more. Not sent to ranks."""

    rank: int
    reason: str
