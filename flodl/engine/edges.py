"""What a rank does at a step's edge: groups, averagings, reports, callbacks. The training window itself: `loop`."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from flodl.decide.messages import (
    Average,
    AveragingDone,
    BundleKept,
    CallbackName,
    CallbackResult,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankOrder,
    Round,
    RunWindow,
)
from flodl.decide.shares import shares
from flodl.engine.averaging.rule import Outcome, RoundOrder
from flodl.engine.callbacks import Callbacks
from flodl.engine.data import Feed
from flodl.engine.failpoints import reach
from flodl.engine.micro import Slices
from flodl.engine.orders import LOOK_SECONDS, Link, Orders, RegroupedError
from flodl.engine.pace import Pace
from flodl.engine.rounds import Rounds
from flodl.engine.schedule import LearningRate
from flodl.engine.tally import Tally, finite

__all__ = ["Edges", "Parts"]

# A first group that fails: who has ended is known in a moment (its agent sees it), and the others may go on without it
# (cluster.controller.join.min_ranks). After that it is what this rank has met that is wrong.
FIRST_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one rank trains with. runs_ahead: it trains on while a round runs (cpu_async)."""

    rank: int
    device: torch.device
    gamma: float
    runs_ahead: bool
    slices: Slices
    feed: Feed
    rate: LearningRate
    pace: Pace
    rounds: Rounds
    callbacks: Callbacks


class Edges:
    """One rank's state, and the things it does between batches.

    round: the one being worked for. ran: batches since the last planned point. planned: batches of the open window.
    ahead: how many may be run past a planned point before the next window is ordered; is_past: that point is passed.
    averaging: the round that runs beside training. launched: one that a grant goes ahead of; is_beyond: batches were
    begun since. begun_epoch: newest one whose first batch was run, -1 before.
    """

    def __init__(self, parts: Parts, link: Link, orders: Orders) -> None:
        self.parts, self.link, self.orders = parts, link, orders
        self.tally = Tally()
        parts.slices.say = self.tally.note
        self.round = Round(0, 0, 0, 0)
        self.ran = self.planned = self.ahead = 0
        self.begun_epoch = -1
        self.is_open = self.is_past = self.is_left = self.is_beyond = False
        self.averaging: Future[Outcome] | None = None
        self.launched: Future[Outcome] | None = None

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
        past = self.round.samples if self.is_past else 0
        part = self.round.samples * self.ran / self.round.batches if self.round.batches else 0.0
        return self.round.samples_before + part + past

    def next_order(self) -> RankOrder | None:
        """What is there while there is work; else wait, for a round's result too.

        The wait counts as idle before the round is ordered (it is for slower ranks) and as exposed after that; not at
        all where the GPU has had batches to run all the while.
        """
        if self.may_train or self.is_due:
            return self.orders.next(0)
        waits_for_result = self.averaging is not None
        self.link.activity = "wait"
        with self.tally.timing("exposed" if waits_for_result else "idle", unless=self.parts.pace.is_busy):
            return self.orders.next(LOOK_SECONDS if waits_for_result else None)

    # ---------------------------------------------------------------------------------------------------- averaging

    def average(self, order: Average) -> None:
        """A round of the last window's work: waited for, or beside training where that runs ahead."""
        rounds = self.parts.rounds
        if order.generation != rounds.generation:
            return
        reach("average.before", rounds.rank, window=order.round)
        began = time.perf_counter()
        own = shares(order.masses)[rounds.ranks.index(rounds.rank)]
        wanted = RoundOrder(order.generation, order.round, own, order.consensus, samples=self.round.samples)
        if self.parts.runs_ahead:
            self.averaging = rounds.submit(wanted, lambda outcome: self.say_averaged(outcome, 0.0))
            return
        self.link.activity = "average"
        outcome = self.orders.wait(rounds.submit(wanted))
        self.adopt(outcome)
        self.say_averaged(outcome, (time.perf_counter() - began) * 1000 - outcome.waited_ms)

    def combine(self, mass: float, *, is_last: bool) -> None:
        """End one round of a grant: combine with the others and adopt the result.

        Where it can be, that is queued on the GPU behind the batches and looked at when the next round ends (the last
        one at once): the card need not wait for this thread.
        """
        self.confirm()
        rounds = self.parts.rounds
        self.link.activity = "average"
        order = RoundOrder(rounds.generation, self.round.number, mass, samples=self.round.samples)
        if self.may_go_ahead and rounds.can_go_ahead(order):
            self.launch(order)
            if is_last:
                self.confirm()
            return
        self.parts.pace.drain()
        began = time.perf_counter()
        rounds.rule.snapshot()
        reach("average.before", rounds.rank, window=self.round.number)
        try:
            outcome = self.orders.wait(rounds.submit(order))
        except RegroupedError:
            self.tally.void()  # what of the grant counts is read off the rounds that are held
            raise
        self.adopt(outcome)
        self.count(outcome, (time.perf_counter() - began) * 1000)

    @property
    def may_go_ahead(self) -> bool:
        """float16 looks at every batch's gradients: it would wait for the round all the same."""
        return self.parts.slices.precision.name != "float16"

    def launch(self, order: RoundOrder) -> None:
        """Queue a round and its step. What goes wrong with the group is in the future."""
        rounds = self.parts.rounds
        rounds.rule.snapshot()
        reach("average.before", rounds.rank, window=order.round)
        self.parts.rate.at(self.round.samples_before)
        self.launched = rounds.launch(order)
        self.launched.add_done_callback(self._is_over)

    def _is_over(self, launched: Future[Outcome]) -> None:
        """What the rank hangs in from now on is its own. On the averaging thread."""
        if self.launched is launched and self.is_beyond:
            self.link.activity = "train"

    def say_train(self) -> None:
        """A batch begins. Who waits for others' part of a launched round, in a full queue, does not hang itself."""
        self.link.activity, self.is_beyond = "average", True
        if self.launched is None or self.launched.done():
            self.link.activity = "train"

    def confirm(self) -> None:
        """Wait for the round that was launched, if there is one; where it is void its step is taken back."""
        if self.launched is None:
            return
        launched, self.launched, self.is_beyond = self.launched, None, False
        self.link.activity = "average"
        try:
            outcome = self.orders.wait(launched)
        except RegroupedError:
            self.parts.rounds.take_back()
            self.tally.void()
            raise
        spent_ms = self.parts.rounds.confirm(outcome)
        reach("average.after")
        self.count(outcome, spent_ms)

    def count(self, outcome: Outcome, spent_ms: float) -> None:
        """A round of a grant for the report. spent_ms: by this rank, with what it waited for others."""
        self.tally.divergence = max(self.tally.divergence, finite(outcome.divergence))
        self.tally.nonfinite = outcome.nonfinite or self.tally.nonfinite
        self.tally.spend("idle", outcome.waited_ms)
        self.tally.spend("exposed", max(0.0, spent_ms - outcome.waited_ms))

    def adopt_when_ready(self) -> None:
        """Adopt a round that ended beside training."""
        if self.averaging is not None and self.averaging.done():
            self.finish_averaging()

    def finish_averaging(self) -> None:
        """Wait for the round that runs beside training, if there is one, and adopt it."""
        if self.averaging is not None:
            before, self.link.activity = self.link.activity, "average"  # a failed one waits for the coordinator's word
            with self.tally.timing("exposed", unless=self.parts.pace.is_busy):
                outcome = self.orders.wait(self.averaging)
                self.averaging, self.link.activity = None, before  # who hangs in adopting it has a limit
                self.adopt(outcome)

    def adopt(self, outcome: Outcome) -> None:
        """Everybody's result, at the rate of the round's beginning: a common step needs a common rate."""
        self.parts.rate.at(self.round.samples_before)
        self.parts.rounds.adopt(outcome)
        reach("average.after")

    # ------------------------------------------------------------------------------------------- groups and reports

    def form_group(self, order: FormGroup) -> None:
        """A new generation. An open window goes on, unless a common start makes its work void."""
        self.link.activity = "group"  # for others, however long: no step of this rank hangs
        averaging, self.averaging = self.averaging, None
        if averaging is not None and averaging.done() and averaging.exception() is None:  # a failed one is void
            self.adopt(averaging.result())
        rounds = self.parts.rounds
        patience = None if rounds.generation or order.joiners else FIRST_PATIENCE_SECONDS
        joined = self.orders.wait(rounds.form(order), patience_seconds=patience)
        digest = rounds.settle(order, joined)
        trial = self.try_evaluation() if order.trial == rounds.rank else None
        if order.source is not None and not order.accept_round:
            self.is_open, self.ran, self.ahead = False, 0, 0
            self.tally.clear()
        if order.bundle is not None and order.source == rounds.rank:
            for remark in rounds.remarks:
                self.tally.note(remark)
        held = rounds.last_round
        self.link.send(
            GroupFormed(
                at=0.0, rank=rounds.rank, generation=order.generation, last_round=held, digest=digest, trial=trial
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

    def report(self) -> None:
        """Send the figures since the last report and begin anew."""
        parts = self.parts
        parts.rounds.require_whole()
        window = (parts.rank, parts.rounds.generation, self.round.number)
        reach("report", parts.rank, window=self.round.number)
        self.link.send(self.tally.report(window, parts.pace.take(), parts.device))
        self.tally.clear()
        self.ran = 0

    def try_evaluation(self) -> CallbackResult:
        """One batch, before anything is trained; counted nowhere."""
        self.link.activity = "callback"
        return self.parts.callbacks.try_batch()

    def call_back_first(self, order: RunWindow) -> None:
        """What a window asks for before it begins, on the consensus of the round before it."""
        within = (order.epoch, order.rounds[0].samples_before)
        named: tuple[CallbackName, ...] = ("eval",) if "eval" in order.callbacks else ()
        self.call_back(named, *(within if order.midway else (order.epoch - 1, 0)))
        if "save" in order.callbacks:
            self.begin_save()

    def begin_epoch(self, epoch: int) -> None:
        """The first batch of an epoch is next; work that is dealt again begins none."""
        self.begun_epoch = epoch
        self.link.activity = "callback"
        with self.tally.timing("callback"):
            self.parts.callbacks.begin_epoch(epoch)

    def begin_save(self) -> None:
        """Copy what the last round has come to; it is sent beside training."""
        self.link.activity = "callback"
        number = self.parts.rounds.last_round
        reach("save.begin", self.parts.rank)
        with self.tally.timing("callback"):
            trouble = self.parts.callbacks.begin_save(number)
        if trouble is not None:
            self.link.send(BundleKept(at=0.0, rank=self.parts.rank, round=number, error=trouble.error))

    def call_back(self, names: tuple[CallbackName, ...], epoch: int, samples_done: int = 0) -> None:
        """Run callbacks; their time is no part of any reading."""
        for name in names:
            self.link.activity = "callback"
            reach("callback", self.parts.rank)
            with self.tally.timing("callback"):
                done = self.parts.callbacks.run(name, epoch, samples_done, round_=self.parts.rounds.last_round)
                self.tally.callbacks.append(done)

    def finish(self, order: Finish) -> None:
        """The last callbacks, then goodbye."""
        self.finish_averaging()
        reach("finish", self.parts.rank)
        self.call_back(order.callbacks, order.epoch)
        self.link.send(Goodbye(at=0.0, rank=self.parts.rank, callbacks=tuple(self.tally.callbacks)))
        self.is_left = True
