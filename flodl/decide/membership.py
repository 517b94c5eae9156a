"""Membership: who is alive, who died of what, and when that ends the run."""

from __future__ import annotations

import msgspec

__all__ = ["Membership"]


class Membership(msgspec.Struct, kw_only=True):
    """The ranks of a run. alive: in order. causes: rank -> why it is gone, in order of death. left: said goodbye.

    formed_by: when the group that is being formed must stand.
    """

    alive: list[int]
    causes: dict[int, str] = {}
    left: list[int] = []
    formed_by: float = 0.0

    @property
    def dead(self) -> tuple[int, ...]:
        """Dead ranks, sorted."""
        return tuple(sorted(self.causes))

    @property
    def first_cause(self) -> str:
        """Why the first rank died: what the run's last message names ("" while nobody did)."""
        return next(iter(self.causes.values()), "")

    def is_alive(self, rank: int) -> bool:
        """True for a rank of this run that neither died nor left."""
        return rank in self.alive

    def die(self, rank: int, cause: str) -> bool:
        """Note a death. False where it is none: unknown, dead already, or gone with a goodbye."""
        if rank not in self.alive:
            return False
        self.alive.remove(rank)
        self.causes[rank] = cause
        return True

    def leave(self, rank: int) -> bool:
        """Note a goodbye; never a death. False for a rank that is not alive."""
        if rank not in self.alive:
            return False
        self.alive.remove(rank)
        self.left.append(rank)
        return True

    def is_spent(self, max_failure: int | str | None) -> str:
        """Why the run cannot go on, in words; "" while it can. max_failure: a number of ranks or "p%" of the world."""
        num_dead = len(self.causes)
        world = len(self.alive) + len(self.left) + num_dead
        if not num_dead:
            return ""
        if not self.alive:
            return "no rank is left"
        if max_failure is None:
            return ""
        if isinstance(max_failure, int):
            reached = num_dead >= max_failure
        else:
            reached = num_dead * 100 >= int(max_failure.rstrip("%")) * world
        return f"{num_dead} of {world} ranks died, membership.max_failure is {max_failure}" if reached else ""
