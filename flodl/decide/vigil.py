"""The vigil: from what was last heard of each rank, who is suspected and who must be taken for dead.

Pure judgement over sightings. Time is the receiver's monotonic clock; no host's own clock and no failed averaging
decides anything. A heartbeat comes from a thread and proves only that the thread lives: so it carries what the
training loop has counted, and what the rank does. Ranks that wait for a hung one are innocent. A loop of the user's own
may take as long as it likes over anything, unless others wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flodl.decide.messages import FormGroup, RankDied, RankOrder, RankSuspected, RunWindow
from flodl.decide.timeouts import Timeouts

__all__ = ["Sighting", "Vigil"]

HOST_LOST = "its host is lost"
REMEMBERED = 5  # windows that the smoothed one is the mean of


class Sighting(msgspec.Struct, frozen=True):
    """When a rank was last heard (the receiver's seconds), and what its training loop said it had done."""

    at: float
    progress: int = 0
    activity: str = ""


class _Watched(msgspec.Struct):
    """One rank. progress, activity: as last heard; moved: when either was first heard so. windows: seconds each.
    has_returned: it is not the run's first process of its rank. told: when it was last sent an order; owes: the window
    that it has to report."""

    progress: int = -1
    activity: str = ""
    moved: float = 0.0
    is_suspected: bool = False
    windows: list[float] = []
    has_returned: bool = False
    told: float = 0.0
    owes: RunWindow | None = None


class Vigil:
    """Over the ranks of a run. hosts: rank -> its host's name."""

    def __init__(self, limits: Timeouts, hosts: Mapping[int, str]) -> None:
        self.limits = limits
        self._hosts = dict(hosts)
        self._watched = {rank: _Watched() for rank in hosts}
        self._first_at: float | None = None  # when a rank had ended its first window, or waited in it for others

    def window(self, rank: int, seconds: float) -> None:
        """A window of `rank` took so long; before its first one nothing is known of what its steps take."""
        watched = self._watched.get(rank)
        if watched is not None:
            watched.windows = [*watched.windows, seconds][-REMEMBERED:]
            watched.owes = None

    def order(self, rank: int, at: float, order: RankOrder) -> None:
        """`rank` was sent an order. A window it owes until it has reported it; a grant ends with its generation."""
        watched = self._watched.get(rank)
        if watched is None:
            return
        watched.told = at
        if isinstance(order, RunWindow):
            watched.owes = order
        elif isinstance(order, FormGroup) and watched.owes is not None and watched.owes.alone:
            watched.owes = None

    def watch(self, rank: int) -> None:
        """Another process of `rank` is coming: nothing is known of it."""
        self._watched[rank] = _Watched(has_returned=True)

    def release(self, rank: int) -> None:
        """A rank is gone, or has been judged: nothing more is expected of it."""
        self._watched.pop(rank, None)

    def judge(self, now: float, sightings: Mapping[int, Sighting]) -> list[RankSuspected | RankDied]:
        """What there is to say now, lowest rank first. Whoever is dead is released; a rank that was never heard is
        not watched: who comes up too late is another matter."""
        told: list[RankSuspected | RankDied] = []
        if self._first_at is None and self._somebody_waits(sightings):
            self._first_at = now
        heard = sorted(self._watched.keys() & sightings.keys())
        for rank in heard:
            watched, seen = self._watched[rank], sightings[rank]
            if (seen.progress, seen.activity) != (watched.progress, watched.activity):
                watched.progress, watched.activity, watched.moved = seen.progress, seen.activity, seen.at
        for rank in heard:
            watched, seen = self._watched[rank], sightings[rank]
            cause = self._silence(rank, now, sightings) or self._hang(watched, now) or self._delay(watched, now)
            if cause:
                told.append(RankDied(at=now, rank=rank, cause=cause))  # that it cannot return is its agent's word
                continue
            silent = now - seen.at
            if silent <= self.limits.suspected:
                watched.is_suspected = False
            elif not watched.is_suspected:
                watched.is_suspected = True
                told.append(RankSuspected(at=now, rank=rank, silent_seconds=silent))
        for event in told:
            if isinstance(event, RankDied):
                self.release(event.rank)
        return told

    def _silence(self, rank: int, now: float, sightings: Mapping[int, Sighting]) -> str:
        """Why a rank from which no frame comes is dead. Ranks of a lost host fall silent within a heartbeat of each
        other: they are judged together, when the last of them is due."""
        limits, silent = self.limits, now - sightings[rank].at
        if silent <= limits.dead:
            return ""
        others = [
            now - sightings[other].at
            for other in self._watched.keys() & sightings.keys()
            if other != rank and self._hosts[other] == self._hosts[rank]
        ]
        if any(limits.dead - 1.5 * limits.heartbeat < other <= limits.dead for other in others):
            return ""
        if others and min(others) > limits.dead:
            return f"{HOST_LOST}: nothing was heard from any rank there for {silent:.1f} s"
        return f"nothing was heard from it for {silent:.1f} s"

    def _hang(self, watched: _Watched, now: float) -> str:
        """Why a rank that is heard is dead all the same."""
        still = now - watched.moved
        if watched.activity == "callback" and still > self.limits.callback:
            return f"a callback took more than {self.limits.callback:g} s"
        if watched.activity == "wait" and watched.owes is not None:
            return self._forgotten(now - max(watched.moved, watched.told))
        if watched.activity != "train":
            return ""
        if watched.windows:
            limit = self.limits.progress(sum(watched.windows) / len(watched.windows))
            return f"it made no progress for {still:.1f} s while training" if still > limit else ""
        return self._hang_at_first(watched, now)

    def _forgotten(self, still: float) -> str:
        """Why a rank that waits for orders is dead: it was sent a window, which it never began. Whatever became of
        that, all would wait for it for ever. (Who forms a group does something else: that has a limit of its own.)"""
        limit = self.limits.stall + self.limits.collective
        return f"it was sent a window and has not begun it for {still:.1f} s" if still > limit else ""

    def _somebody_waits(self, sightings: Mapping[int, Sighting]) -> bool:
        has_ended = any(watched.windows for watched in self._watched.values())
        return has_ended or any(seen.activity == "average" for seen in sightings.values())

    def _hang_at_first(self, watched: _Watched, now: float) -> str:
        """Of a first window nobody knows how long it takes (it may compile), until others wait for its end."""
        began = watched.moved if watched.has_returned else self._first_at
        if began is None:
            return ""
        still = now - max(began, watched.moved)
        why = f"it made no progress for {still:.1f} s in its first window, and others wait for it"
        return why if still > self.limits.stall else ""

    def _delay(self, watched: _Watched, now: float) -> str:
        """Why a rank in a loop of the user's own is dead although nobody knows what that does: others wait for it."""
        waiting = [other.moved for other in self._watched.values() if other.activity == "average"]
        if watched.activity != "loop" or not waiting:
            return ""
        still = now - max(watched.moved, min(waiting))
        told = f"its loop made no progress for {still:.1f} s while others waited for it in an averaging"
        return told if still > self.limits.stall else ""
