"""A rank's part in rounds: groups by generation, the averaging thread, and which round's result is held."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from torch import Tensor, nn

from flodl.decide.messages import FormGroup
from flodl.engine.averaging.lane import Lane
from flodl.engine.averaging.rule import Outcome, RoundOrder, Rule
from flodl.engine.averaging.start import digest, from_bytes, start_tensors, to_bytes
from flodl.ports import Averager

__all__ = ["Rounds"]


class Rounds:
    """Forms groups and runs rounds beside the training thread; changes the model only in `start` and `adopt`.

    niceness: of the averaging thread, above 0 where rounds run beside training.
    """

    def __init__(self, rank: int, model: nn.Module, rule: Rule, averager: Averager, *, niceness: int = 0) -> None:
        self.rank = rank
        self.rule = rule
        self.generation = 0
        self.ranks: tuple[int, ...] = ()
        self.last_round = 0
        self._model = model
        self._averager = averager
        self._niceness = niceness
        self._lane: Lane | None = None
        self._last_end = time.perf_counter()

    def form(self, command: FormGroup) -> Future[Tensor | None]:
        """Leave the old generation as it is and join the new one on a fresh thread.

        The future holds the source's bytes, None where nobody's state is adopted.
        """
        if self._lane is not None:
            self._lane.retire()
        self.generation, self.ranks = command.generation, command.ranks
        self.rule.regroup(len(command.ranks), command.ranks.index(self.rank))
        self._lane = Lane(f"averaging-{command.generation}", niceness=self._niceness)
        mine = to_bytes(start_tensors(self._model)) if command.source is not None else None
        return self._lane.submit(lambda: self._join(command, mine))

    def start(self, command: FormGroup, joined: Tensor | None) -> str:
        """Adopt the source's state; returns the hash of the result ("" where there is no source)."""
        if joined is None:
            return ""
        tensors = start_tensors(self._model)
        from_bytes(joined, tensors)
        self.rule.start()
        self.last_round = max(self.last_round, command.accept_round)
        return digest(to_bytes(tensors))

    def submit(self, order: RoundOrder, report: Callable[[Outcome], None] | None = None) -> Future[Outcome]:
        """Run a round on the averaging thread; `report` is called there as soon as the result is held."""
        if self._lane is None:
            raise RuntimeError("a round was ordered before a group was formed")
        return self._lane.submit(lambda: self._average(order, report))

    def adopt(self, outcome: Outcome) -> None:
        """Take over a round's result. On the training thread, at a step's edge."""
        self.rule.adopt(outcome)
        self.last_round = outcome.order.round

    def _join(self, command: FormGroup, mine: Tensor | None) -> Tensor | None:
        self._averager.form(command.generation, command.ranks)
        if mine is not None and command.source is not None:
            self._averager.broadcast(command.generation, command.source, [mine])
        self._last_end = time.perf_counter()
        return mine

    def _average(self, order: RoundOrder, report: Callable[[Outcome], None] | None) -> Outcome:
        arrival_ms = (time.perf_counter() - self._last_end) * 1000
        outcome = self.rule.average(self._averager, replace(order, arrival_ms=arrival_ms))
        self._last_end = outcome.ended
        if report is not None:
            report(outcome)
        return outcome
