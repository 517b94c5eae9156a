"""The present order: what the living ranks were told to run, what they have reported, and which results they hold."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flodl.decide.messages import AveragingDone, Round, WindowDone

__all__ = ["Order"]


class Order(msgspec.Struct, kw_only=True):
    """One order to all ranks: a round, or (alone) a grant of several.

    rounds: per rank, the dead of this order included. epochs: epoch of a rank's window. overshoot: batches that a rank
    may run past its planned point. averaged_in: generation in which `Average` was last ordered, 0 before, and
    averaged_at: when. at: when the order was given. is_rest: it ends an epoch, of which less than a window was left.
    """

    number: int
    epoch: int
    alone: bool
    at: float
    rounds: dict[int, tuple[Round, ...]]
    epochs: dict[int, int]
    overshoot: dict[int, int]
    is_rest: bool = False
    averaged_in: int = 0
    averaged_at: float = 0.0
    reports: dict[int, WindowDone] = {}
    results: dict[int, AveragingDone] = {}

    @property
    def first(self) -> int:
        """Number of the first round of the order (`number` is the last)."""
        return next((listed[0].number for listed in self.rounds.values() if listed), self.number)

    def planned(self, rank: int) -> int:
        """Batches that `rank` was told to run in the rounds up to `number`."""
        return sum([listed.batches for listed in self.rounds.get(rank, ()) if listed.number <= self.number])

    def missing_reports(self, alive: Iterable[int]) -> tuple[int, ...]:
        """Living ranks that have not reported the end of their window."""
        return tuple([rank for rank in alive if rank not in self.reports])

    def missing_results(self, alive: Iterable[int]) -> tuple[int, ...]:
        """Living ranks that do not hold the round's result yet."""
        return tuple([rank for rank in alive if rank not in self.results])

    @property
    def divergence(self) -> float:
        """The largest divergence that a rank which took part saw."""
        seen = [done.divergence for done in (*self.results.values(), *self.reports.values())]
        return max(seen, default=0.0)

    @property
    def exposed_ms(self) -> dict[int, float]:
        """Averaging time that the training of the ranks that have reported waited for in this order."""
        exposed = {rank: self.reports[rank].exposed_ms for rank in sorted(self.reports)}
        for rank, done in self.results.items():
            exposed[rank] += done.exposed_ms
        return exposed

    @property
    def round_ms(self) -> float:
        """From when the averaging was ordered until the last rank held its result, as the coordinator saw it: what a
        window must hide in cpu_async. 0 where none was ordered (a grant)."""
        ended = max([done.at for done in self.results.values()], default=self.averaged_at)
        return max(0.0, ended - self.averaged_at) * 1000.0

    @property
    def nonfinite(self) -> dict[int, str]:
        """Ranks whose contribution was left out, with their first parameter that was not finite."""
        parts = (self.results, self.reports)
        found = {rank: done.nonfinite for part in parts for rank, done in part.items() if done.nonfinite}
        return dict(sorted(found.items()))
