"""Collectives in virtual time: they end when all members are there, and may end on some members only when one dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from flodl.decide.messages import Range

__all__ = ["Collective", "Contribution", "Meetings"]


@dataclass(frozen=True)
class Contribution:
    """What a rank brings into a round: the samples that it trained since the last one."""

    rank: int
    ranges: tuple[Range, ...]
    is_finite: bool = True


@dataclass
class Collective:
    """One operation of one generation."""

    members: tuple[int, ...]
    brought: dict[int, Contribution] = field(default_factory=dict[int, Contribution])
    ends_at: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def is_complete(self) -> bool:
        """True when every member has arrived."""
        return len(self.brought) == len(self.members)

    @property
    def result(self) -> tuple[Contribution, ...]:
        """What the result contains: every finite contribution, in order of rank."""
        return tuple(self.brought[rank] for rank in sorted(self.brought) if self.brought[rank].is_finite)


class Meetings:
    """All operations, by (generation, name)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._open: dict[tuple[int, str], Collective] = {}

    def arrive(
        self, key: tuple[int, str], members: Sequence[int], what: Contribution, now: float, lasts_seconds: float
    ) -> Collective | None:
        """A member has arrived. Returns the operation when this completes it, with `ends_at` per member."""
        meeting = self._open.setdefault(key, Collective(tuple(members)))
        meeting.brought[what.rank] = what
        if not meeting.is_complete:
            return None
        spread = lasts_seconds * 0.2
        meeting.ends_at = {rank: now + lasts_seconds + spread * self._random.random() for rank in meeting.members}
        return meeting

    def lose(self, rank: int, now: float) -> None:
        """`rank` died: of the operations under way, each of the others gets the result or waits in vain."""
        for meeting in self._open.values():
            if rank in meeting.members and meeting.is_complete:
                for other, at in sorted(meeting.ends_at.items()):
                    if at > now and self._random.random() < 0.5:
                        del meeting.ends_at[other]

    def deliver(self, key: tuple[int, str], rank: int) -> tuple[Contribution, ...] | None:
        """The result of an operation as it reaches `rank`; None where it never does."""
        meeting = self._open[key]
        if meeting.ends_at.pop(rank, None) is None:
            return None
        return meeting.result
