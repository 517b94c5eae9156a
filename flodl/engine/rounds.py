"""A rank's part in rounds: groups by generation, the averaging thread, and which round's result is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import torch
from torch import Tensor, nn

from flodl.decide.messages import FormGroup
from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.lane import Here, Lane
from flodl.engine.averaging.rule import Outcome, RoundOrder, Rule
from flodl.engine.averaging.start import digest, from_bytes, start_tensors, to_bytes
from flodl.engine.averaging.under_way import UnderWay
from flodl.engine.handing import Handing
from flodl.engine.parcel import Way
from flodl.engine.resuming import Resuming
from flodl.engine.snapshot import Snapshot
from flodl.errors import FlodlError
from flodl.ports import Averager

__all__ = ["Rounds"]


class Rounds:
    """Forms groups and runs rounds beside the training thread; changes the model only in `settle` and `adopt`.

    niceness: of the averaging thread, above 0 where rounds run beside training. device: where vectors are summed.
    last_round: newest one held. resuming: what the run goes on from. handing: what ranks that come back
    adopt. ema: the consensus's moving average, if any.
    """

    def __init__(
        self,
        rank: int,
        model: nn.Module,
        rule: Rule,
        averager: Averager,
        *,
        niceness: int = 0,
        device: torch.device | None = None,
    ) -> None:
        self.rank = rank
        self.rule = rule
        self.generation = 0
        self.ranks: tuple[int, ...] = ()
        self.last_round = 0
        self._model = model
        self._parameters = _identities(model)
        self._averager = averager
        self._niceness = niceness
        self._device = device or torch.device("cpu")
        self.resuming: Resuming | None = None
        self.handing: Handing | None = None
        self.ema: Ema | None = None
        self._lane: Lane | Here | None = None
        self._wanted = RoundOrder(0, 0, 0.0)
        self._last_end = time.perf_counter()
        self._going: UnderWay | None = None  # newest round that was launched, and the one before it
        self._before_it: UnderWay | None = None
        self._arrival_ms = 0.0  # of the newest round that was launched and has ended
        self._has_met = False  # a round of this generation has gone through

    def require_whole(self) -> None:
        """Raise where the model no longer has the parameters that it was built with (asked once per report).

        A step that replaces them trains tensors that neither the optimizer nor the averaging knows.
        """
        now = _identities(self._model)
        if now != self._parameters:
            names = sorted(name for name, _ in now.items() ^ self._parameters.items())
            raise FlodlError(
                f"the model's parameters were replaced while training: {names[0]} (of {len(set(names))}); "
                "make them all in its constructor, and change their values in place"
            )

    def form(self, command: FormGroup) -> Future[list[Tensor]]:
        """Leave the old generation as it is and join the new one on a fresh thread.

        The future holds what the source sent: for a common start all parameters and buffers as bytes, to repair a
        round its result, for who joins all that the run stands on; nothing where there is no source.
        """
        if self._lane is not None:
            self._lane.retire()
        self.generation, self.ranks = command.generation, command.ranks
        self._has_met = False
        self._begin_afresh()
        self.rule.regroup(len(command.ranks), command.ranks.index(self.rank))
        self._lane = self._lane_of(command)
        if command.joiners:
            handed = self.handing.capture() if self.handing is not None and command.source == self.rank else None
            return self._lane.submit(lambda: self._hand(command, handed))
        mine: list[Tensor] = []
        if command.source is not None and command.bundle is None:
            mine = self._result() if command.accept_round else [self._state()]
        return self._lane.submit(lambda: self._join(command, mine))

    def _lane_of(self, command: FormGroup) -> Lane | Here:
        if len(command.ranks) == 1 and not self._niceness:
            return Here()
        return Lane(f"averaging-{command.generation}", niceness=self._niceness, device=self._device)

    def settle(self, command: FormGroup, joined: Sequence[Tensor]) -> str:
        """Adopt what the source sent; returns the hash of the result of a common start, else ""."""
        if not joined:
            return ""
        if command.joiners and self.handing is not None:
            self.handing.adopt(*joined)
            self.last_round = command.accept_round
            return ""
        if command.accept_round:
            self._repair(command, joined)
            return ""
        tensors = start_tensors(self._model)
        if command.bundle is not None and self.resuming is not None:
            self.resuming.adopt(*joined)
            self.last_round = command.bundle
        else:
            from_bytes(joined[0], tensors)
            self.rule.start()
            if self.ema is not None:
                self.ema.start()
        return digest(to_bytes(tensors))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the bundle this run does not use, and what it lacks."""
        return () if self.resuming is None else self.resuming.remarks

    def _state(self) -> Tensor:
        return to_bytes(start_tensors(self._model), self._device)

    def submit(self, order: RoundOrder, report: Callable[[Outcome], None] | None = None) -> Future[Outcome]:
        """Run a round on the averaging thread; `report` is called there once the future holds the result, so that what
        was reported is never given up for a new generation."""
        if self._lane is None:
            raise ValueError(f"round {order.round} was ordered before a group was formed")
        self._wanted = order
        future = self._lane.submit(lambda: self._average(order))
        if report is not None:
            future.add_done_callback(lambda done: None if done.exception() else report(done.result()))
        return future

    def can_go_ahead(self, order: RoundOrder) -> bool:
        """Whether a round may be launched.

        Not a generation's first: NCCL connects its members then, for which a training thread must not wait. A moving
        average follows what is confirmed.
        """
        rule = self.rule
        return self._has_met and self.ema is None and isinstance(rule, GradientRule) and rule.can_go_ahead(order)

    def launch(self, order: RoundOrder) -> Future[Outcome]:
        """Begin a round and take its step, waiting for nothing; the future holds what has come of it. On the training
        thread, after `snapshot`; then `confirm` or `take_back`. One round at a time.

        When this rank arrived is known to its GPU only: the others are told that of the round before it.
        """
        if self._lane is None or not isinstance(self.rule, GradientRule):
            raise ValueError(f"round {order.round} cannot be launched")
        self._wanted = order
        going = self.rule.launch(self._averager, replace(order, arrival_ms=self._arrival_ms))
        self._before_it, self._going = self._going, going
        return self._lane.submit(going.outcome)

    def confirm(self, outcome: Outcome) -> float:
        """The launched round has ended and stands. For how many ms the device did no batches for it, waits included."""
        if self._going is None or not isinstance(self.rule, GradientRule):
            raise ValueError(f"round {outcome.order.round} was not launched")
        self.rule.confirm(outcome)
        self.last_round = outcome.order.round
        self._last_end = outcome.ended
        if self._before_it is not None:
            self._arrival_ms = self._before_it.summed.ms_until(self._going.ready)
        return self._going.spent_ms()

    def take_back(self) -> None:
        """The launched round is void."""
        if isinstance(self.rule, GradientRule):
            self.rule.take_back()
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        """What was measured of rounds that were launched says nothing of the next one."""
        self._going = self._before_it = None
        self._arrival_ms = 0.0

    def adopt(self, outcome: Outcome) -> None:
        """Take over a round's result. On the training thread, at a step's edge."""
        self.rule.adopt(outcome)
        self.last_round, self._has_met = outcome.order.round, True
        self._begin_afresh()
        if self.ema is not None:
            self.ema.follow(self.rule, outcome)

    def _result(self) -> list[Tensor]:
        """What the last adopted round gave, for who lacks it; the moving average comes last."""
        return [*self.rule.result(), *([] if self.ema is None else self.ema.result())]

    def _repair(self, command: FormGroup, result: Sequence[Tensor]) -> None:
        """Who lacks the accepted round adopts its result as it would have in the round; who holds it went on."""
        missed = command.accept_round
        if self.last_round >= missed:
            return
        order = self._wanted if self._wanted.round == missed else RoundOrder(command.generation, missed, 1.0)
        average: Sequence[Tensor] = ()
        if self.ema is not None:
            of_rule = len(result) - len(self.ema.flat.vectors) - 1
            result, average = result[:of_rule], result[of_rule:]
        self.rule.adopt(self.rule.repaired(result, order))
        self.last_round = missed
        if self.ema is not None:
            self.ema.load(average)

    def _join(self, command: FormGroup, mine: list[Tensor]) -> list[Tensor]:
        source, resuming = command.source, self.resuming if command.bundle is not None else None
        if source == self.rank and resuming is not None and command.bundle is not None:
            resuming.fetch(command.bundle)  # before the others wait in a collective that has a limit
        self._averager.form(command.generation, command.ranks)
        if source is not None and resuming is not None:
            way = Way(self._averager, command.generation, source, self._device)
            mine = way.spread(resuming.packed() if source == self.rank else None, wanted=True)
        elif mine and command.source is not None:
            self._averager.broadcast(command.generation, command.source, mine)
        self._last_end = time.perf_counter()
        return mine

    def _hand(self, command: FormGroup, handed: Snapshot | FlodlError | None) -> list[Tensor]:
        """Join, and take part in what the source hands to the newcomers; only they keep it."""
        self._averager.form(command.generation, command.ranks)
        self._last_end = time.perf_counter()
        if self.handing is None or command.source is None:
            return []
        wanted = self.rank in command.joiners
        return self.handing.spread(self._averager, command.generation, command.source, handed, wanted=wanted)

    def _average(self, order: RoundOrder) -> Outcome:
        arrival_ms = (time.perf_counter() - self._last_end) * 1000
        outcome = self.rule.average(self._averager, replace(order, arrival_ms=arrival_ms))
        self._last_end = outcome.ended
        return outcome


def _identities(model: nn.Module) -> dict[str, int]:
    return {name: id(parameter) for name, parameter in model.named_parameters()}
