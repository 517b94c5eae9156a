"""Membership: who is alive, who died of what, who may come back, and when deaths end the run."""

from __future__ import annotations

import bisect

import msgspec

__all__ = ["Comeback", "Membership"]


class Comeback(msgspec.Struct, kw_only=True):
    """A rank's way back. restarts: processes that were started for it beside its first one; the newest one's number.

    died_at: when it was lost, until it is back. due: when the next process is started. ready_by: the newest one is
    starting and must be ready by then. is_ready: it waits for a round's edge. since: the generation in which it joined.
    """

    restarts: int = 0
    died_at: float | None = None
    due: float | None = None
    ready_by: float | None = None
    is_ready: bool = False
    since: int = 0

    @property
    def is_awaited(self) -> bool:
        """A replacement is there, and not among the living yet."""
        return self.ready_by is not None or self.is_ready

    @property
    def is_possible(self) -> bool:
        """It may still come back."""
        return self.due is not None or self.is_awaited

    def stop(self) -> None:
        """Nothing is awaited any more."""
        self.due = self.ready_by = None
        self.is_ready = False


class Membership(msgspec.Struct, kw_only=True):
    """The ranks of a run. alive: in order. causes: rank -> why it is gone, in order of death; a rank that is back is no
    longer among them. deaths: all causes that ever were. left: said goodbye. comebacks: of ranks that have died.

    formed_by: when the group that is being formed must stand.
    """

    alive: list[int]
    causes: dict[int, str] = {}
    deaths: list[str] = []
    left: list[int] = []
    comebacks: dict[int, Comeback] = {}
    formed_by: float = 0.0

    @property
    def dead(self) -> tuple[int, ...]:
        """Dead ranks, sorted."""
        return tuple(sorted(self.causes))

    @property
    def first_cause(self) -> str:
        """Why the first of the dead died: what the run's last message names ("" while nobody is dead)."""
        return next(iter(self.causes.values()), "")

    @property
    def restarts(self) -> dict[int, int]:
        """rank -> processes that were started for it beside its first one, where there were any."""
        return {rank: back.restarts for rank, back in sorted(self.comebacks.items()) if back.restarts}

    @property
    def awaited(self) -> tuple[int, ...]:
        """Dead ranks whose replacement is starting, or waits for a round's edge."""
        return tuple(rank for rank, back in sorted(self.comebacks.items()) if back.is_awaited)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Dead ranks whose replacement is ready."""
        return tuple(rank for rank, back in sorted(self.comebacks.items()) if back.is_ready)

    @property
    def may_grow(self) -> bool:
        """True while a dead rank may still come back."""
        return any(back.is_possible for back in self.comebacks.values())

    def is_alive(self, rank: int) -> bool:
        """True for a rank of this run that neither died nor left."""
        return rank in self.alive

    def hears(self, rank: int, generation: int) -> bool:
        """True for a word of a living rank that was not said before it came back."""
        back = self.comebacks.get(rank)
        return rank in self.alive and (back is None or generation >= back.since)

    def incarnation(self, rank: int) -> int:
        """Number of the newest process of a rank; its first one is 0."""
        back = self.comebacks.get(rank)
        return 0 if back is None else back.restarts

    def die(self, rank: int, cause: str) -> bool:
        """Note a death. False where it is none: unknown, dead already, or gone with a goodbye."""
        if rank not in self.alive:
            return False
        self.alive.remove(rank)
        self.causes[rank] = cause
        self.deaths.append(cause)
        return True

    def come_back(self, rank: int, generation: int) -> None:
        """A dead rank's replacement takes its place; the rank no longer counts as dead."""
        self.causes.pop(rank, None)
        bisect.insort(self.alive, rank)
        self.comebacks[rank].stop()
        self.comebacks[rank].since = generation

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
