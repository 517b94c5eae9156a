"""What ElChe gained: the rate that was achieved against the one that lockstep could have had on the same ranks."""

from __future__ import annotations

import msgspec

from flodl.record.result import Result

__all__ = ["Gain", "gain", "own_pace", "went_on"]


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """achieved, lockstep: samples per second of the whole world. slowest: the rank that lockstep would wait for.

    lockstep is the best case of equal steps for everybody: ranks x the slowest rank's own pace, with averaging and
    waiting for free. So `ratio` never flatters.
    """

    achieved: float
    lockstep: float
    slowest: int

    @property
    def ratio(self) -> float:
        """achieved / lockstep."""
        return self.achieved / self.lockstep


def went_on(result: Result) -> bool:
    """Whether its ranks trained a part of its samples only: the others were done in the run that it went on from."""
    return 0 < sum(rank.samples for rank in result.per_rank) < result.samples_done


def own_pace(samples: int, compute_seconds: float) -> float:
    """Samples per second of a rank's own compute; 0 where it computed nothing."""
    return samples / compute_seconds if compute_seconds > 0 else 0.0


def gain(result: Result) -> Gain | None:
    """The gain of a run; None for one rank, for a run that trained nothing, one whose ranks did not all train, or one
    that went on from another: its rate is that of both."""
    paces = {r.rank: own_pace(r.samples, r.compute_seconds) for r in result.per_rank}
    if len(paces) < 2 or not all(pace > 0 for pace in paces.values()) or result.dead_ranks or result.restarts:
        return None
    if went_on(result):
        return None
    slowest = min(paces, key=lambda rank: (paces[rank], rank))
    return Gain(achieved=result.samples_per_second, lockstep=len(paces) * paces[slowest], slowest=slowest)
