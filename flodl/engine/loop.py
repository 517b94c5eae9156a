"""The training window: orders, batches, averagings, reports, from the first group to goodbye.

One thread trains. It looks for orders at every step's edge; averaging runs on a thread of its own and its result is
adopted at an edge too, so that nothing ever changes weights in the middle of a step. What ran past a planned point
(cpu_async) is counted towards the next window.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from flodl.decide.messages import (
    Average,
    AveragingDone,
    CallbackName,
    Cut,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    Round,
    RunWindow,
)
from flodl.decide.shares import mass, shares
from flodl.engine.averaging.rule import Outcome, RoundOrder
from flodl.engine.callbacks import Callbacks
from flodl.engine.data import Feed
from flodl.engine.orders import LOOK_SECONDS, Link, Orders, RankOrder, RegroupedError
from flodl.engine.pace import Pace
from flodl.engine.rounds import Rounds
from flodl.engine.schedule import LearningRate
from flodl.engine.seeding import seed_batch
from flodl.engine.tally import Tally, finite

__all__ = ["Loop", "Parts"]


class Step(Protocol):
    """The user's training step: a batch's mean loss, a scalar."""

    def __call__(self, model: nn.Module, batch: Any) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one rank trains with. runs_ahead: it trains on while a round runs (cpu_async)."""

    rank: int
    device: torch.device
    seed: int
    gamma: float
    runs_ahead: bool
    model: nn.Module
    step: Step
    feed: Feed
    rate: LearningRate
    pace: Pace
    rounds: Rounds
    callbacks: Callbacks


class Loop:
    """One rank's way through the run.

    ran: batches since the last planned point. planned: of the open window. ahead: how many may be run past a planned
    point before the next window is ordered; is_past: that point is passed.
    """

    def __init__(self, parts: Parts, link: Link, orders: Orders) -> None:
        self.parts, self.link, self.orders = parts, link, orders
        self.tally = Tally()
        self.round = Round(0, 0, 0, 0)
        self.ran = self.planned = self.ahead = self.epoch = 0
        self.is_open = self.is_past = self.is_left = False
        self.averaging: Future[Outcome] | None = None

    # ------------------------------------------------------------------------------------------ the training window

    def run(self) -> None:
        """Orders first, then one batch, until `Finish`."""
        while not self.is_left:
            try:
                self.adopt_when_ready()
                while not self.is_left and (order := self.next_order()) is not None:
                    self.obey(order)
                if self.may_train:
                    self.train_batch()
                if self.is_due:
                    self.close_window()
            except RegroupedError:  # the new generation's order is next
                self.averaging = None

    def obey(self, order: RankOrder) -> None:
        """Carry out one order."""
        match order:
            case FormGroup():
                self.form_group(order)
            case RunWindow(alone=True):
                self.run_grant(order)
            case RunWindow():
                self.open_window(order)
            case Average():
                self.average(order)
            case Cut():
                self.planned, self.ahead = 0, 0
            case Finish():
                self.finish(order)

    def train_batch(self) -> None:
        """One batch: load, seed, set the learning rate, forward, backward, step."""
        parts = self.parts
        with self.tally.timing("data_wait"):
            batch = parts.feed.next()
        if batch is None:
            return
        self.link.progress, self.link.activity = self.link.progress + 1, "train"
        seed_batch(parts.seed, batch.epoch, batch.first_position, parts.device)
        self.tally.learning_rate = parts.rate.at(self.samples_dealt)
        parts.pace.begin()
        loss = parts.step(parts.model, batch.inputs)
        loss.backward()
        parts.rounds.rule.step(batch.samples)
        parts.pace.end()
        self.tally.add(loss, batch.samples)
        self.ran, self.epoch = self.ran + 1, batch.epoch

    def open_window(self, order: RunWindow) -> None:
        """A window until the next planned point; in cpu_async some of its batches may have been run."""
        self.finish_averaging()
        self.call_back(order.callbacks, order.epoch - 1)
        self.round, self.planned, self.ahead = order.rounds[0], order.rounds[0].batches, order.max_overshoot
        self.parts.feed.restate(order.ranges, skip=self.ran)
        self.is_open, self.is_past = True, False

    def close_window(self) -> None:
        """The planned point: fix what is contributed, and say so."""
        self.is_open, self.is_past = False, True
        with self.tally.timing("exposed"):
            self.parts.rounds.rule.snapshot()
        self.report(self.round.number)

    def average(self, order: Average) -> None:
        """A round: waited for, or beside training where it runs ahead."""
        rounds = self.parts.rounds
        if order.generation != rounds.generation:
            return
        began = time.perf_counter()
        own_mass = shares(order.masses)[rounds.ranks.index(rounds.rank)]
        wanted = RoundOrder(order.generation, order.round, own_mass, order.consensus)
        if self.parts.runs_ahead:
            self.averaging = rounds.submit(wanted, lambda outcome: self.say_averaged(outcome, 0.0))
            return
        self.link.activity = "average"
        outcome = self.orders.wait(rounds.submit(wanted))
        self.adopt(outcome)
        self.say_averaged(outcome, (time.perf_counter() - began) * 1000 - outcome.waited_ms)

    def run_grant(self, order: RunWindow) -> None:
        """Several rounds that the ranks run by themselves; one report."""
        self.call_back(order.callbacks, order.epoch - 1)
        self.is_past = False
        self.parts.rounds.rule.discard()
        self.parts.feed.restate(order.ranges)
        for self.round in order.rounds:
            self.ran, self.planned, before = 0, self.round.batches, self.tally.samples
            while self.ran < self.planned and len(self.parts.feed):
                self.train_batch()
            self.combine(self.tally.samples - before)
        self.report(self.round.number)

    def combine(self, samples: int) -> None:
        """End one round of a grant: combine with the others and adopt the result."""
        rounds, began = self.parts.rounds, time.perf_counter()
        self.link.activity = "average"
        rounds.rule.snapshot()
        wanted = RoundOrder(rounds.generation, self.round.number, mass(samples, self.parts.gamma))
        outcome = self.orders.wait(rounds.submit(wanted))
        self.adopt(outcome)
        self.tally.divergence = max(self.tally.divergence, finite(outcome.divergence))
        self.tally.nonfinite = outcome.nonfinite or self.tally.nonfinite
        self.tally.spend("idle", outcome.waited_ms)
        self.tally.spend("exposed", max(0.0, (time.perf_counter() - began) * 1000 - outcome.waited_ms))

    # --------------------------------------------------------------------------------------------------- the edges

    @property
    def is_due(self) -> bool:
        """The planned point is reached, or there is nothing left to run before it."""
        return self.is_open and (self.ran >= self.planned or not len(self.parts.feed))

    @property
    def may_train(self) -> bool:
        """Before the planned point of an open window, or ahead of the next one."""
        limit = self.planned if self.is_open else (self.ahead if self.parts.runs_ahead else 0)
        return self.ran < limit and len(self.parts.feed) > 0

    @property
    def samples_dealt(self) -> float:
        """Samples of the run before the next batch: what drives the learning rate.

        Past a planned point the next window's figures are not known yet: it is taken to go on as the last one did.
        """
        windows = self.ran / self.round.batches if self.round.batches else 0.0
        return self.round.samples_before + self.round.samples * (windows + (1.0 if self.is_past else 0.0))

    def next_order(self) -> RankOrder | None:
        """What is there while there is work; else wait, for a round's result too, and count the wait."""
        if self.may_train or self.is_due:
            return self.orders.next(0)
        began, waits_for_result = time.perf_counter(), self.averaging is not None
        self.link.activity = "wait"
        order = self.orders.next(LOOK_SECONDS if waits_for_result else None)
        self.tally.spend("exposed" if waits_for_result else "idle", (time.perf_counter() - began) * 1000)
        return order

    def adopt_when_ready(self) -> None:
        """Adopt a round that ended beside training."""
        if self.averaging is not None and self.averaging.done():
            self.finish_averaging()

    def finish_averaging(self) -> None:
        """Wait for the round that runs beside training, if there is one, and adopt it."""
        if self.averaging is not None:
            with self.tally.timing("exposed"):
                outcome = self.orders.wait(self.averaging)
                self.averaging = None
                self.adopt(outcome)

    def adopt(self, outcome: Outcome) -> None:
        """Everybody's result, at the rate of the round's beginning: a common step needs a common rate."""
        self.parts.rate.at(self.round.samples_before)
        self.parts.rounds.adopt(outcome)

    def form_group(self, order: FormGroup) -> None:
        """A new generation. Where a rank's state is adopted, this rank's open window is void."""
        self.adopt_when_ready()
        self.averaging = None
        rounds = self.parts.rounds
        patience = None if rounds.generation else 0.0  # before the first group there is nobody else to blame
        joined = self.orders.wait(rounds.form(order), patience_seconds=patience)
        digest = rounds.start(order, joined)
        if order.source is not None:
            self.is_open, self.ran, self.ahead = False, 0, 0
            self.tally.clear()
        self.link.send(
            GroupFormed(
                at=0.0, rank=rounds.rank, generation=order.generation, last_round=rounds.last_round, digest=digest
            )
        )

    def say_averaged(self, outcome: Outcome, exposed_ms: float) -> None:
        """Tell that a round's result is held. In cpu_async on the averaging thread."""
        self.link.send(
            AveragingDone(
                at=0.0,
                rank=self.parts.rank,
                generation=outcome.order.generation,
                round=outcome.order.round,
                divergence=finite(outcome.divergence),
                exposed_ms=max(0.0, exposed_ms),
                duration_ms=outcome.duration_ms,
                nonfinite=outcome.nonfinite,
            )
        )

    def report(self, round_number: int) -> None:
        """Send the figures since the last report and begin anew."""
        parts = self.parts
        steps_ms = parts.pace.take()
        self.link.send(self.tally.report((parts.rank, parts.rounds.generation, round_number), steps_ms, parts.device))
        self.tally.clear()
        self.ran = 0

    def call_back(self, names: tuple[CallbackName, ...], epoch: int) -> None:
        """Run callbacks; their time is no part of any reading."""
        for name in names:
            self.link.activity = "callback"
            with self.tally.timing("callback"):
                self.tally.callbacks.append(self.parts.callbacks.run(name, epoch))

    def finish(self, order: Finish) -> None:
        """The last callbacks, then goodbye."""
        self.finish_averaging()
        self.call_back(order.callbacks, self.epoch)
        self.link.send(Goodbye(at=0.0, rank=self.parts.rank, callbacks=tuple(self.tally.callbacks)))
        self.is_left = True
