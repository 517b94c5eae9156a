"""A rank in virtual time: trains by sleeping, and keeps book of what its consensus contains.

It obeys the same orders as a live rank, at the edges of its steps. Its own bookkeeping (`consensus`: the ranges that
every accepted round brought in) is what the tests hold against the ledger's.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from flodl.decide.ledger import count_batches, num_samples, take_batches
from flodl.decide.messages import (
    Average,
    AveragingDone,
    CallbackName,
    CallbackResult,
    Command,
    Cut,
    Event,
    Finish,
    FormGroup,
    Goodbye,
    GroupFormed,
    Range,
    RunWindow,
    WindowDone,
)
from flodl.decide.roster import Place
from flodl.sim.books import Books
from flodl.sim.collective import Contribution

__all__ = ["Surroundings", "VirtualRank"]


class Surroundings(Protocol):
    """What a rank needs of its world."""

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        ...

    def send(self, rank: int, event: Event) -> None:
        """Hand an event to the link."""
        ...

    def after(self, rank: int, seconds: float, what: str) -> None:
        """Call the rank's method `what` later, if it lives then and is not frozen."""
        ...

    def meet(self, rank: int, generation: int, name: str, members: tuple[int, ...], what: Contribution) -> None:
        """Take part in a collective; `met` is called with its result."""
        ...

    def step_ms(self, rank: int) -> float:
        """How long the rank's next batch takes."""
        ...

    def callback(self, rank: int, name: CallbackName) -> CallbackResult:
        """What comes of a callback on this rank, and how long it takes."""
        ...

    def keep(self, rank: int, number: int) -> None:
        """The rank's save of a round, beside training."""
        ...

    def is_poisoned(self, rank: int) -> bool:
        """True once where the rank's next contribution is not finite."""
        ...

    def blend_ms(self) -> float:
        """What adopting a result costs the training thread."""
        ...

    def divergence(self) -> float:
        """What this averaging shows."""
        ...


class VirtualRank:
    """One rank. `run` is the number of batches run since the last planned point."""

    def __init__(self, world: Surroundings, place: Place) -> None:
        self.rank = place.rank
        self.consensus: dict[int, tuple[Contribution, ...]] = {}
        self.last_round = 0
        self.has_left = False
        self._world = world
        self._place = place
        self._books = Books(place)
        self._inbox: deque[Command] = deque()
        self._busy = False
        self._generation = 0
        self._members: tuple[int, ...] = ()
        self._order: RunWindow | None = None
        self._ranges: list[Range] = []
        self._run = 0
        self._overshoot = 0
        self._brought: Contribution | None = None  # the snapshot of the reported window
        self._reported = 0
        self._grant_index = 0
        self._grant_left = 0
        self._in_round = False
        self._averaging_since: float | None = None
        self._idle_since: float | None = world.now
        self._formation: FormGroup | None = None
        self._callbacks: list[CallbackResult] = []

    # ------------------------------------------------------------------------------------------------ the inbox

    def receive(self, command: Command) -> None:
        """A command has come over the link; it is obeyed at the edge of a step."""
        self._inbox.append(command)
        self._go_on()

    def _go_on(self) -> None:
        while not self._busy and not self.has_left:
            if self._inbox:
                self._obey(self._inbox.popleft())
            elif not self._work():
                break

    def _obey(self, command: Command) -> None:
        match command:
            case RunWindow():
                self._take_order(command)
            case Average():
                self._average(command)
            case FormGroup():
                self._form(command)
            case Cut():
                self._cut()
            case Finish():
                self._finish(command)
            case _:
                raise TypeError(f"no rank is ever sent {type(command).__name__}")

    # ------------------------------------------------------------------------------------------------- training

    def _take_order(self, order: RunWindow) -> None:
        size = self._place.batch_size
        begun, _ = take_batches(self._ranges, self._run, size)
        restated, _ = take_batches(order.ranges, self._run, size)
        if num_samples(begun) != num_samples(restated) or _flat(begun) != _flat(restated):
            raise AssertionError(f"rank {self.rank} had run {begun}, the new list begins with {restated}")
        self._order = order
        self._ranges = list(order.ranges)
        self._overshoot = order.max_overshoot
        self._grant_index = 0
        self._grant_left = order.rounds[0].batches
        self._callbacks = [self._world.callback(self.rank, name) for name in order.callbacks if name != "save"]
        if "save" in order.callbacks:
            self._world.keep(self.rank, self.last_round)
        if self._callbacks:
            self._books.callback_ms += sum(result.seconds for result in self._callbacks) * 1000.0
            self._sleep(sum(result.seconds for result in self._callbacks), "rested")

    def _work(self) -> bool:
        """Do the next thing that needs no order. False when there is none."""
        order = self._order
        if order is None:
            return self._overshoot > 0 and self._run < self._overshoot and self._step()
        if order.alone:
            return self._work_alone(order)
        if self._run >= order.rounds[0].batches:
            self._report(order)
            return True
        return self._step()

    def _step(self) -> bool:
        if self._run >= count_batches(self._ranges, self._place.batch_size):
            raise AssertionError(f"rank {self.rank} was told to run more batches than it holds")
        self._books.end_idle(self._idle_since, self._world.now)
        self._idle_since = None
        ms = self._world.step_ms(self.rank)
        self._books.step(ms)
        self._sleep(ms / 1000.0, "stepped")
        return True

    def stepped(self) -> None:
        """A step has ended."""
        self._busy = False
        self._run += 1
        self._grant_left -= 1
        self._idle_since = self._world.now
        self._go_on()

    def rested(self) -> None:
        """A callback or a blend has ended."""
        self._busy = False
        self._idle_since = self._world.now
        self._go_on()

    def _sleep(self, seconds: float, then: str) -> None:
        self._busy = True
        self._world.after(self.rank, seconds, then)

    def _cut(self) -> None:
        if self._order is not None and not self._order.alone:
            self._report(self._order)

    def _report(self, order: RunWindow) -> None:
        """The planned point is reached: snapshot, report, and, in cpu_async, train on."""
        head = self._pass_planned_point()
        self._brought = Contribution(self.rank, tuple(head), not self._world.is_poisoned(self.rank))
        self._reported = order.rounds[0].number
        self._order = None
        self._send_report(self._reported, head)

    def _pass_planned_point(self) -> list[Range]:
        head, self._ranges = take_batches(self._ranges, self._run, self._place.batch_size)
        return head

    def _send_report(self, number: int, head: list[Range], nonfinite: str = "") -> None:
        self._books.end_idle(self._idle_since, self._world.now)
        self._idle_since = self._world.now
        done: WindowDone = self._books.report(
            generation=self._generation,
            number=number,
            batches=self._run,
            samples=num_samples(head),
            callbacks=tuple(self._callbacks),
            nonfinite=nonfinite,
        )
        self._run = 0
        self._callbacks = []
        self._world.send(self.rank, done)

    # ------------------------------------------------------------------------------------------------ averaging

    def _average(self, order: Average) -> None:
        if order.generation != self._generation or order.round != self._reported or self._brought is None:
            return
        self._averaging_since = self._world.now
        self._world.meet(self.rank, self._generation, f"round {order.round}", self._members, self._brought)

    def averaged(self, generation: int, number: int, result: tuple[Contribution, ...]) -> None:
        """The averaging thread has a round's result; one of an older generation is dropped."""
        if generation != self._generation or self.has_left:
            return
        if self._order is not None and self._order.alone:
            self._end_round(number, result)
            return
        began = self._world.now if self._averaging_since is None else self._averaging_since
        self._averaging_since = None
        duration_ms = (self._world.now - began) * 1000.0
        self.consensus[number] = result
        self.last_round = number
        held_since = self._idle_since if not self._busy else self._world.now
        held_ms = (self._world.now - max(began, held_since or 0.0)) * 1000.0
        in_background = self._overshoot > 0
        if in_background:
            self._books.exposed_ms += held_ms + self._world.blend_ms()
        was_finite = self._brought is None or self._brought.is_finite
        self._idle_since = self._world.now if self._idle_since is not None else None
        self._world.send(
            self.rank,
            AveragingDone(
                at=0.0,
                rank=self.rank,
                generation=generation,
                round=number,
                divergence=self._world.divergence(),
                exposed_ms=0.0 if in_background else duration_ms,
                duration_ms=duration_ms,
                nonfinite="" if was_finite else "layer.weight",
            ),
        )

    # --------------------------------------------------------------------------------------------------- grants

    def _work_alone(self, order: RunWindow) -> bool:
        if self._in_round:
            return False
        if self._grant_left > 0:
            return self._step()
        taken, _ = take_batches(self._ranges, self._run, self._place.batch_size)
        before = sum(one.batches for one in order.rounds[: self._grant_index])
        earlier, _ = take_batches(self._ranges, before, self._place.batch_size)
        _, mine = _split(taken, num_samples(earlier))
        self._in_round = True
        self._averaging_since = self._world.now
        number = order.rounds[self._grant_index].number
        what = Contribution(self.rank, tuple(mine), not self._world.is_poisoned(self.rank))
        self._brought = what
        self._world.meet(self.rank, self._generation, f"round {number}", self._members, what)
        return False

    def _end_round(self, number: int, result: tuple[Contribution, ...]) -> None:
        order = self._order
        assert order is not None
        assert self._brought is not None
        self._in_round = False
        self.consensus[number] = result
        self.last_round = number
        self._grant_index += 1
        if not self._brought.is_finite:
            self._books.nonfinite = "layer.weight"
        if self._grant_index < len(order.rounds):
            self._grant_left = order.rounds[self._grant_index].batches
        else:
            head = self._pass_planned_point()
            self._order = None
            self._send_report(number, head, self._books.nonfinite)
        self._go_on()

    # ----------------------------------------------------------------------------------------------- generations

    def _form(self, order: FormGroup) -> None:
        self._generation = order.generation
        self._members = order.ranks
        self._formation = order
        self._averaging_since = None
        if self._order is not None and self._order.alone:
            self._order, self._run, self._ranges, self._in_round = None, 0, [], False
        self._world.meet(self.rank, order.generation, "formation", order.ranks, Contribution(self.rank, ()))

    def formed(self, generation: int, source: VirtualRank) -> None:
        """The group stands; where the order named a source its state is adopted."""
        order = self._formation
        if generation != self._generation or order is None:
            return
        is_mine = not order.joiners or self.rank in order.joiners
        if order.source is not None and order.accept_round > self.last_round and is_mine:
            self.consensus = dict(source.consensus)
            self.last_round = order.accept_round
        digest = "" if order.source is None or order.accept_round else "start"
        formed = GroupFormed(at=0.0, rank=self.rank, generation=generation, last_round=self.last_round, digest=digest)
        self._world.send(self.rank, formed)

    @property
    def source(self) -> int | None:
        """The rank whose state this one was told to adopt."""
        return None if self._formation is None else self._formation.source

    # --------------------------------------------------------------------------------------------------- the end

    def _finish(self, order: Finish) -> None:
        self._callbacks = [self._world.callback(self.rank, name) for name in order.callbacks]
        if any(result.name == "save" and result.ok for result in self._callbacks):
            self._world.keep(self.rank, self.last_round)
        self._sleep(sum(result.seconds for result in self._callbacks), "leave")

    def leave(self) -> None:
        """The callbacks of the end are done."""
        self.has_left = True
        self._world.send(self.rank, Goodbye(at=0.0, rank=self.rank, callbacks=tuple(self._callbacks)))


def _flat(ranges: list[Range]) -> list[tuple[int, int]]:
    """Every sample of `ranges`, in order."""
    return [(piece.epoch, position) for piece in ranges for position in range(piece.start, piece.stop)]


def _split(ranges: list[Range], samples: int) -> tuple[list[Range], list[Range]]:
    head: list[Range] = []
    rest = list(ranges)
    while rest and samples > 0:
        piece = rest.pop(0)
        here = min(samples, len(piece))
        head.append(Range(piece.epoch, piece.start, piece.start + here))
        samples -= here
        if here < len(piece):
            rest.insert(0, Range(piece.epoch, piece.start + here, piece.stop))
    return head, rest
