"""The ledger: every sample of an epoch is owed, out, trained or done, and nowhere twice.

Rules of this room: positions of an epoch's permutation are counted in samples and kept as ranges; a batch is formed
from ranges by arithmetic alone, so that a rank and the ledger always cut the same batches; nothing leaves `trained`
but by the acceptance of its round or by the death of its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from flodl.decide.messages import Range

__all__ = [
    "Ledger",
    "count_batches",
    "cut_batches",
    "merged",
    "num_samples",
    "samples_of",
    "stretches",
    "take_batches",
    "take_samples",
]


def num_samples(ranges: Iterable[Range]) -> int:
    """Samples in all of `ranges`."""
    return sum([piece.stop - piece.start for piece in ranges])  # a list: generators cost more than they save here


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same samples, sorted, with neighbours joined."""
    joined: list[Range] = []
    for piece in sorted(ranges):
        if joined and joined[-1].epoch == piece.epoch and joined[-1].stop == piece.start:
            joined[-1] = Range(piece.epoch, joined[-1].start, piece.stop)
        elif len(piece):
            joined.append(piece)
    return joined


def take_samples(ranges: Sequence[Range], samples: int) -> tuple[list[Range], list[Range]]:
    """Split in order after `samples` samples (or at the end): (head, tail)."""
    head: list[Range] = []
    for index, piece in enumerate(ranges):
        if samples <= 0:
            return head, list(ranges[index:])
        length = piece.stop - piece.start
        if length > samples:
            edge = piece.start + samples
            return [*head, Range(piece.epoch, piece.start, edge)], [
                Range(piece.epoch, edge, piece.stop),
                *ranges[index + 1 :],
            ]
        head.append(piece)
        samples -= length
    return head, []


def stretches(ranges: Iterable[Range]) -> list[int]:
    """Lengths, in samples, of the stretches of one epoch."""
    lengths: list[int] = []
    last_epoch: int | None = None
    for piece in ranges:
        if piece.epoch == last_epoch:
            lengths[-1] += len(piece)
        elif len(piece):
            lengths.append(len(piece))
            last_epoch = piece.epoch
    return lengths


def count_batches(ranges: Iterable[Range], batch_size: int) -> int:
    """Batches that `cut_batches` would make."""
    return sum(-(-length // batch_size) for length in stretches(ranges))


def take_batches(ranges: Sequence[Range], batches: int, batch_size: int) -> tuple[list[Range], list[Range]]:
    """Split in order after `batches` batches (or at the end): (head, tail)."""
    return take_samples(ranges, samples_of(ranges, batches, batch_size))


def samples_of(ranges: Sequence[Range], batches: int, batch_size: int) -> int:
    """Samples in the first `batches` batches."""
    if ranges and ranges[0].stop - ranges[0].start >= batches * batch_size:  # the common case: whole batches of one
        return batches * batch_size
    samples = 0
    for length in stretches(ranges):
        here = min(batches, -(-length // batch_size))
        samples += min(length, here * batch_size)
        batches -= here
        if not batches:
            break
    return samples


def cut_batches(ranges: Sequence[Range], batch_size: int) -> tuple[tuple[Range, ...], ...]:
    """The batches of `ranges`, in order: `batch_size` samples across ranges of one epoch.

    A batch is short only at the end of an epoch's stretch. Ranks and the ledger use this same rule.
    """
    batches: list[tuple[Range, ...]] = []
    rest = [piece for piece in ranges if len(piece)]
    while rest:
        head, rest = take_batches(rest, 1, batch_size)
        batches.append(tuple(head))
    return tuple(batches)


class Ledger(msgspec.Struct, kw_only=True):
    """Where every sample of the run is. All state is plain; `held` and `trained` are per rank, the rest per epoch.

    epoch_samples: samples of one epoch (a whole number of batches). Epochs are opened when first dealt from.
    held: what a rank was told to hold from its last planned point on. trained: reported, round not yet accepted.
    samples_done: accepted samples of all epochs.
    """

    epoch_samples: int
    num_epochs: int
    opened: int = 0
    owed: dict[int, list[Range]] = {}
    held: dict[int, list[Range]] = {}
    trained: dict[int, list[Range]] = {}
    done: dict[int, list[Range]] = {}
    samples_done: int = 0

    def open(self, epoch: int) -> None:
        """Make an epoch's samples owed, with all epochs before it. An epoch past the last, or open already: no-op."""
        while self.opened <= min(epoch, self.num_epochs - 1):
            self.owed[self.opened] = [Range(self.opened, 0, self.epoch_samples)]
            self.done[self.opened] = []
            self.opened += 1

    @property
    def epoch(self) -> int | None:
        """The lowest epoch with samples that nobody has trained; None when there are none."""
        waiting = [epoch for epoch, ranges in self.owed.items() if ranges]
        waiting += [piece.epoch for ranges in self.held.values() for piece in ranges]
        if waiting:
            return min(waiting)
        return self.opened if self.opened < self.num_epochs else None

    @property
    def newest(self) -> int:
        """The newest epoch of which samples are accepted; 0 where none are."""
        return max((epoch for epoch, ranges in self.done.items() if ranges), default=0)

    def owed_samples(self, epoch: int) -> int:
        """Samples of `epoch` that nobody holds."""
        return num_samples(self.owed.get(epoch, ()))

    def held_samples(self, rank: int, epoch: int) -> int:
        """Samples of `epoch` that `rank` holds."""
        return sum([piece.stop - piece.start for piece in self.held.get(rank, ()) if piece.epoch == epoch])

    @property
    def samples_dealt(self) -> int:
        """Samples of windows that were run: accepted, or waiting for acceptance."""
        return self.samples_done + sum(num_samples(ranges) for ranges in self.trained.values())

    def trained_samples(self, rank: int) -> int:
        """Samples that `rank` has reported for the round that is not accepted yet."""
        return num_samples(self.trained.get(rank, ()))

    def left(self, epoch: int) -> int:
        """Samples of `epoch` that are not accepted yet."""
        return self.epoch_samples - num_samples(self.done.get(epoch, ()))

    def is_done(self, epoch: int) -> bool:
        """True when every sample of `epoch` is accepted."""
        return epoch < self.opened and num_samples(self.done[epoch]) == self.epoch_samples

    def deal(self, rank: int, epoch: int, samples: int) -> None:
        """Move up to `samples` owed samples of `epoch` to the end of what `rank` holds."""
        if samples <= 0 or epoch >= self.num_epochs:
            return
        if epoch >= self.opened:
            self.open(epoch)
        head, self.owed[epoch] = take_samples(self.owed.get(epoch, ()), samples)
        held = self.held.setdefault(rank, [])
        if head and held and held[-1].epoch == epoch and held[-1].stop == head[0].start:
            held[-1] = Range(epoch, held[-1].start, head[0].stop)
            held.extend(head[1:])
        else:
            held.extend(head)

    def recall(self, rank: int, keep: int) -> None:
        """Owe again what `rank` holds after its first `keep` samples."""
        self.held[rank], tail = take_samples(self.held.get(rank, ()), keep)
        self._owe(tail)

    def run(self, rank: int, batches: int, batch_size: int) -> list[Range]:
        """`rank` has trained its first `batches` batches. Returns their ranges."""
        head, self.held[rank] = take_batches(self.held.get(rank, ()), batches, batch_size)
        if head:
            self.trained.setdefault(rank, []).extend(head)
        return head

    def accept(self) -> None:
        """The round that averaged all trained samples is accepted: they are done."""
        pieces = [piece for ranges in self.trained.values() for piece in ranges]
        for epoch in sorted({piece.epoch for piece in pieces}):
            self.done[epoch] = merged([*self.done[epoch], *(piece for piece in pieces if piece.epoch == epoch)])
            if self.is_done(epoch):
                self.owed.pop(epoch, None)
        self.samples_done += num_samples(pieces)
        self.trained = {}

    def reclaim(self, rank: int) -> int:
        """`rank` is dead: all that it holds or trained without acceptance is owed again. Returns how many samples."""
        lost = self.held.pop(rank, []) + self.trained.pop(rank, [])
        self._owe(lost)
        return num_samples(lost)

    def void_trained(self) -> None:
        """No round will ever hold what was trained without acceptance: it is owed again."""
        for ranges in self.trained.values():
            self._owe(ranges)
        self.trained = {}

    def audit(self) -> tuple[int, int]:
        """(lost, dup): samples of opened epochs that are nowhere, and that are in two places. Both must be 0."""
        places = (self.owed, self.held, self.trained, self.done)
        everywhere = [piece for place in places for ranges in place.values() for piece in ranges]
        lost = dup = 0
        for epoch in range(self.opened):
            edge = 0
            for piece in sorted(piece for piece in everywhere if piece.epoch == epoch):
                lost += max(0, piece.start - edge)
                dup += max(0, min(edge, piece.stop) - piece.start)
                edge = max(edge, piece.stop)
            lost += max(0, self.epoch_samples - edge)
        return lost, dup

    def _owe(self, ranges: Iterable[Range]) -> None:
        for piece in ranges:
            self.owed[piece.epoch] = merged([*self.owed.get(piece.epoch, ()), piece])
