"""One rank's batches, in the order in which the coordinator deals them.

Which positions a rank trains is the coordinator's word (ranges), and it may restate them at any window's edge; how
they become batches is decide.ledger's arithmetic, how a batch is read is `reading`'s. Where loader processes read, they
are always given as many batches ahead as they may hold, across every edge; what was recalled in between is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from flodl.decide.ledger import cut_batches, num_samples, take_batches
from flodl.decide.messages import Range
from flodl.engine.loader import Workers
from flodl.engine.reading import Reader, moved

__all__ = ["Batch", "Feed", "Loading"]


class Batch(NamedTuple):
    """inputs: what the step is called with, on the device. first_position: its place in the epoch's permutation."""

    inputs: Any
    epoch: int
    first_position: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class Loading:
    """name: of the data set, for messages. num_workers: loader processes, 0: the rank reads. prefetch: batches each.

    repeated: only so many samples are read, over and over; None: all.
    """

    name: str = "the data set"
    num_workers: int = 0
    prefetch: int = 2
    pin_memory: bool = False
    repeated: int | None = None


class Feed:
    """Made before the rank has threads that compute: loader processes are forked here, and die with the rank.

    num_positions: positions of an epoch that may be dealt.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        seed: int,
        num_positions: int,
        device: torch.device,
        loading: Loading = Loading(),
    ) -> None:
        self.batch_size = batch_size
        self.num_positions = num_positions
        self.device = device
        self._pin = loading.pin_memory
        self._reader = Reader(dataset, seed=seed, name=loading.name, repeated=loading.repeated)
        self._is_there = self._reader.lies_on(device)
        self._workers = Workers(self._reader, loading.num_workers, loading.prefetch) if loading.num_workers else None
        self._ahead: deque[tuple[Range, ...]] = deque()  # batches that are wanted and on their way
        self._rest: deque[tuple[Range, ...]] = deque()  # held beyond those

    def restate(self, ranges: Iterable[Range], *, skip: int = 0) -> None:
        """Replace what is held. The first `skip` batches of the list are those that this rank has already run."""
        held = [piece for piece in ranges if len(piece)]
        beyond = [piece for piece in held if piece.stop > self.num_positions]
        if beyond:
            raise ValueError(f"{beyond[0]} was dealt, but an epoch has {self.num_positions} positions")
        _, rest = take_batches(held, skip, self.batch_size)
        self._rest = deque(map(_joined, cut_batches(rest, self.batch_size)))  # here: it would cost every step more
        if self._workers is not None:
            self._match(self._workers)
            self._send_ahead(self._workers)

    def __len__(self) -> int:
        """Batches that are held and not yet taken."""
        return len(self._ahead) + len(self._rest)

    def next(self) -> Batch | None:
        """The next batch; None when nothing is held. All the waiting for data happens here. Raises FlodlError."""
        if not len(self):
            return None
        if self._workers is None:
            pieces = self._rest.popleft()
            inputs = self._reader.batch(pieces)
        else:
            pieces, inputs = self._fetch(self._workers)
        if not self._is_there:
            inputs = moved(inputs, self.device, pin=self._pin)
        return Batch(inputs, pieces[0].epoch, pieces[0].start, num_samples(pieces))

    def close(self) -> None:
        """End the loader processes. (A rank that ends takes them with it.)"""
        if self._workers is not None:
            self._workers.close()

    def _fetch(self, workers: Workers) -> tuple[tuple[Range, ...], Any]:
        while self._is_recalled_first(workers):
            workers.drop()
            self._send_ahead(workers)
        wanted, inputs = self._ahead.popleft(), workers.take()
        self._send_ahead(workers)
        return wanted, inputs

    def _is_recalled_first(self, workers: Workers) -> bool:
        return not self._ahead or workers.on_the_way[0] is not self._ahead[0]

    def _match(self, workers: Workers) -> None:
        """Find what is on its way in the new list; orders are kept, so what is not the next one was recalled."""
        self._ahead.clear()
        for sent in workers.on_the_way:
            if self._rest and self._rest[0] == sent:
                self._rest.popleft()
                self._ahead.append(sent)
        while workers.is_ready and self._is_recalled_first(workers):
            workers.drop()

    def _send_ahead(self, workers: Workers) -> None:
        while self._rest and workers.has_room:
            pieces = self._rest.popleft()
            self._ahead.append(pieces)
            workers.send(pieces)


def _joined(pieces: Sequence[Range]) -> tuple[Range, ...]:
    """The same positions in the same order, with neighbours joined: equal batches are equal values."""
    joined: list[Range] = []
    for piece in pieces:
        if joined and joined[-1].epoch == piece.epoch and joined[-1].stop == piece.start:
            joined[-1] = Range(piece.epoch, joined[-1].start, piece.stop)
        elif len(piece):
            joined.append(piece)
    return tuple(joined)
