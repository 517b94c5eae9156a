"""The ledger oracle: what a run's journal says was learnt, and what the weights of `linear` must be for that.

It knows nothing of the coordinator's own ledger: it follows the orders that ranks were given and the rounds that were
averaged, and adds up in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flodl.decide.messages import Average, AveragingDone, Command, Event, GroupFormed, Range, RunWindow, WindowDone
from flodl.engine.reading import permutation

__all__ = ["Learnt", "learnt"]

Told = Sequence[tuple[Event, tuple[Command, ...]]]


class Learnt:
    """visits: how often each sample counts. weights: what they have come to. rounds: accepted ones."""

    def __init__(self, samples: int, batch_size: int, rate: float, seed: int) -> None:
        self.visits = np.zeros(samples, dtype=int)
        self.weights = np.zeros(samples)
        self.rounds = 0
        self.batch_size = batch_size
        self._rate, self._seed = rate, seed
        self._orders: dict[int, np.ndarray] = {}

    def count(self, ranges: Sequence[Range], gain: float) -> None:
        """Samples at these positions were learnt from; gain: of each weight, at a rate of 1."""
        for piece in ranges:
            order = self._orders.setdefault(piece.epoch, permutation(self._seed, piece.epoch, len(self.visits)))
            np.add.at(self.visits, order[piece.start : piece.stop], 1)
            np.add.at(self.weights, order[piece.start : piece.stop], self._rate * gain)


class _Reader:
    """Follows the journal. held: what each rank has before it. worked: what it did for the round that is averaged."""

    def __init__(self, found: Learnt) -> None:
        self.found = found
        self.held: dict[int, list[Range]] = {}
        self.worked: dict[int, list[Range]] = {}
        self.average: Average | None = None
        self.grant: dict[int, RunWindow] = {}
        self.newest = 0  # round that any rank is known to hold
        self.broken: set[tuple[int, int]] = set()  # (round, rank) whose contribution was not finite

    def hear(self, event: Event) -> None:
        match event:
            case WindowDone() if event.rank in self.grant:
                self.newest = max(self.newest, event.round)
            case WindowDone():
                done, rest = _first(self.held.get(event.rank, []), event.samples)
                self.held[event.rank] = rest
                self.worked.setdefault(event.rank, []).extend(done)
            case AveragingDone():
                self.newest = max(self.newest, event.round)
                if event.nonfinite:
                    self.broken.add((event.round, event.rank))
            case GroupFormed():
                self.newest = max(self.newest, event.last_round)

    def obey(self, commands: Sequence[Command]) -> None:
        windows = [command for command in commands if isinstance(command, RunWindow)]
        if windows:
            self.settle(windows[0].rounds[0].number - 1)
            self.worked = {}
        for window in windows:
            if window.alone:
                self.grant[window.to[0]] = window
            self.held[window.to[0]] = list(window.ranges)
        for command in commands:
            if isinstance(command, Average):
                self.average = command

    def settle(self, accepted: int) -> None:
        """Rounds up to this one count."""
        if self.average is not None and self.average.round <= accepted:
            self._averaged(self.average)
        self.average = None
        for number in sorted({one.number for window in self.grant.values() for one in window.rounds}):
            if number <= accepted:
                self._combined(number)
        self.grant = {}

    def _averaged(self, order: Average) -> None:
        """Each replica moved by itself, and the mean weighs them by their samples; one that is not finite has none."""
        told = dict(zip(order.to, order.masses, strict=True))
        masses = {rank: 0.0 if (order.round, rank) in self.broken else mass for rank, mass in told.items()}
        for rank in order.to:
            gain = masses[rank] / (sum(masses.values()) or 1.0) / self.found.batch_size
            self.found.count(self.worked.get(rank, []), gain)
        self.found.rounds += 1

    def _combined(self, number: int) -> None:
        """One common step along the mean gradient of all samples of the round."""
        pieces: list[Range] = []
        for rank, window in self.grant.items():
            (one,) = [one for one in window.rounds if one.number == number]
            done, self.held[rank] = _first(self.held[rank], one.batches * self.found.batch_size)
            pieces += done
        samples = sum(map(len, pieces))
        self.found.count(pieces, 1 / max(1, samples))
        self.found.rounds += 1


def learnt(told: Told, samples: int, batch_size: int, rate: float, seed: int = 0) -> Learnt:
    """Of a whole journal."""
    found = Learnt(samples, batch_size, rate, seed)
    reader = _Reader(found)
    for event, commands in told:
        reader.hear(event)
        reader.obey(commands)
    reader.settle(reader.newest)
    return found


def _first(ranges: Sequence[Range], samples: int) -> tuple[list[Range], list[Range]]:
    """The first so many samples, and the rest."""
    head: list[Range] = []
    tail: list[Range] = []
    for piece in ranges:
        mine = max(0, min(len(piece), samples))
        samples -= mine
        if mine:
            head.append(Range(piece.epoch, piece.start, piece.start + mine))
        if mine < len(piece):
            tail.append(Range(piece.epoch, piece.start + mine, piece.stop))
    return head, tail
