"""The training window: orders, batches, averagings, reports, from the first group to goodbye.

One thread trains. It looks for orders at every step's edge; averaging runs on a thread of its own and its result is
adopted at an edge too, so that nothing ever changes weights in the middle of a step. What ran past a planned point
(cpu_async) counts towards the next window.
"""

from __future__ import annotations

import time

from flodl.decide.messages import Average, Cut, Finish, FormGroup, RankOrder, RunWindow
from flodl.decide.shares import mass
from flodl.engine.edges import Edges
from flodl.engine.failpoints import reach
from flodl.engine.orders import RegroupedError

__all__ = ["Loop"]


class Loop(Edges):
    """One rank's way through the run. What happens between batches is in `Edges`."""

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
            except RegroupedError:  # what was waited for is void; the new generation's order is next
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

    def open_window(self, order: RunWindow) -> None:
        """A window until the next planned point; in cpu_async some of its batches may have been run."""
        self.finish_averaging()
        self.call_back_first(order)
        self.round, self.planned, self.ahead = order.rounds[0], order.rounds[0].batches, order.max_overshoot
        self.parts.feed.restate(order.ranges, skip=self.ran)
        self.is_open, self.is_past = True, False

    def train_batch(self) -> None:
        """One batch: load, set the learning rate, forward and backward (slice by slice), step."""
        parts = self.parts
        self.say_train()  # a data set that hangs is a rank without progress
        began = time.perf_counter()
        batch = parts.feed.next()
        self.tally.spend("data_wait", (time.perf_counter() - began) * 1000)
        if batch is None:
            return
        if batch.epoch > self.begun_epoch:
            self.confirm()  # the user's function meets weights that stand
            self.begin_epoch(batch.epoch)
            self.say_train()
        self.link.progress += 1
        reach("step.before", parts.rank, batch.epoch, self.round.number)
        self.tally.learning_rate = parts.rate.at(self.samples_dealt)
        parts.pace.begin()
        gradients = parts.slices.gradients(batch)
        if gradients.is_usable:
            parts.rounds.rule.step(batch.samples)
        parts.pace.end()
        self.tally.add(gradients, batch.samples)
        self.ran += 1
        reach("step.after")

    def close_window(self) -> None:
        """The planned point: fix what is contributed, and say so."""
        self.is_open, self.is_past = False, True
        self.parts.pace.drain()
        with self.tally.timing("exposed"):
            self.parts.rounds.rule.snapshot()
        self.report()

    def run_grant(self, order: RunWindow) -> None:
        """Several rounds that the ranks run by themselves; one report."""
        self.call_back_first(order)
        self.parts.rounds.rule.discard()
        self.parts.feed.restate(order.ranges)
        for self.round in order.rounds:
            self.ran, self.is_past, before = 0, False, self.tally.learned
            while self.ran < self.round.batches and len(self.parts.feed):
                self.train_ahead()
            is_last = self.round is order.rounds[-1]
            self.combine(mass(self.tally.learned - before, self.parts.gamma), is_last=is_last)
        self.report()

    def train_ahead(self) -> None:
        """One batch, maybe on weights of a round that is void: then what it raises is void, too."""
        try:
            self.train_batch()
        except Exception:
            self.confirm()
            raise
