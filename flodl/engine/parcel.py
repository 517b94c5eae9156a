"""What a run stands on, on its way from one rank to others: three parts, end to end, a piece at a time.

The port has a broadcast, so everybody takes part in it: nobody but who wants it needs memory for more than a piece, and
each piece has the limit of a collective for itself, however large the whole is. First come the lengths of the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl.ports import Averager
from flodl.record.bundle_names import KINDS

__all__ = ["NUM_PARTS", "PIECE_BYTES", "Parcel", "Way", "opened"]

PIECE_BYTES = 32 << 20
NUM_PARTS = 1 + len(KINDS)  # what is no tensor, then a file per kind


@dataclass(frozen=True)
class Parcel:
    """lengths: bytes of each part, 0 for one that there is not. views: all bytes, in order, once."""

    lengths: Sequence[int]
    views: Iterable[memoryview]


@dataclass(frozen=True)
class Way:
    """From whom, through which group; device: where vectors are exchanged."""

    averager: Averager
    generation: int
    source: int
    device: torch.device

    def spread(self, parcel: Parcel | None, *, wanted: bool) -> list[Tensor]:
        """Take part. parcel: of the source alone. What was sent (for `opened`), where it is wanted."""
        lengths = torch.tensor(list(parcel.lengths) if parcel else [0] * NUM_PARTS, device=self.device)
        self._broadcast(lengths)
        total = int(lengths.sum())
        filled = None if parcel is None else _filled(parcel.views, total)
        whole = torch.empty(total if wanted else 0, dtype=torch.uint8)
        piece = torch.empty(min(total, PIECE_BYTES), dtype=torch.uint8, device=self.device)
        for start in range(0, total, PIECE_BYTES):
            part = piece[: min(PIECE_BYTES, total - start)]
            if filled is not None:
                part.copy_(next(filled))
            self._broadcast(part)
            if wanted:
                whole[start : start + len(part)].copy_(part)
        return [lengths.cpu(), whole] if wanted else []

    def _broadcast(self, vector: Tensor) -> None:
        self.averager.broadcast(self.generation, self.source, [vector])


def opened(lengths: Tensor, whole: Tensor) -> list[bytes]:
    """The parts."""
    data, at, parts = whole.numpy().data, 0, []
    for length in lengths.tolist():
        parts.append(bytes(data[at : at + length]))
        at += length
    return parts


def _filled(views: Iterable[memoryview], total: int) -> Iterator[Tensor]:
    """The same bytes in pieces of PIECE_BYTES, each valid until the next."""
    buffer = torch.empty(min(total, PIECE_BYTES), dtype=torch.uint8)
    room, at = buffer.numpy().data, 0
    for view in views:
        rest = view.cast("B")
        while len(rest):
            taken = rest[: len(room) - at]
            room[at : at + len(taken)] = taken
            at, rest = at + len(taken), rest[len(taken) :]
            if at == len(room):
                yield buffer
                at = 0
    if at:
        yield buffer[:at]
