"""What a rank that comes back is handed: all that a bundle of the newest round would hold, through the group.

The port has a broadcast, so everybody takes part in it, a piece at a time: nobody but the newcomer needs memory for
more than a piece. First come the lengths of the parts, then the parts, end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
import torch
from torch import Tensor

from flodl.engine.bundle import TrainingState
from flodl.engine.snapshot import Snapshot
from flodl.errors import FlodlError
from flodl.ports import Averager
from flodl.record.bundle_names import Kind

__all__ = ["Handing"]

KINDS: tuple[Kind, ...] = ("model", "outer")
PIECE_BYTES = 32 << 20


class _Parcel:
    """The parts, in order: what is no tensor, then a file per kind. trouble: why there are none."""

    def __init__(self, snapshot: Snapshot | None, trouble: str = "") -> None:
        self._snapshot = None if snapshot is None else snapshot.freeze()
        self._head = msgspec.json.encode({"trouble": trouble} if snapshot is None else snapshot.plain)

    @property
    def lengths(self) -> list[int]:
        """Bytes of each part, 0 for one that there is not."""
        held = () if self._snapshot is None else self._snapshot.kinds
        sizes = [self._snapshot.num_bytes(kind) if self._snapshot and kind in held else 0 for kind in KINDS]
        return [len(self._head), *sizes]

    def views(self) -> Iterator[memoryview]:
        """All bytes."""
        yield memoryview(self._head)
        if self._snapshot is not None:
            yield from chain.from_iterable(self._snapshot.chunks(k) for k in KINDS if k in self._snapshot.kinds)


class Handing:
    """state: of this rank. device: where vectors are exchanged."""

    def __init__(self, state: TrainingState, device: torch.device) -> None:
        self._state, self._device = state, device

    def capture(self) -> Snapshot | FlodlError:
        """What this rank hands on, taken at a step's edge; why it cannot, where it cannot: that is no end of it."""
        try:
            return self._state.capture()
        except FlodlError as error:
            return error

    def spread(
        self, averager: Averager, generation: int, source: int, mine: Snapshot | FlodlError | None, *, wanted: bool
    ) -> list[Tensor]:
        """Take part. mine: of the source alone. What was sent, where it is wanted. On the averaging thread."""
        parcel = None
        if mine is not None:
            parcel = _Parcel(None, str(mine)) if isinstance(mine, FlodlError) else _Parcel(mine)
        lengths = torch.tensor(parcel.lengths if parcel else [0] * (1 + len(KINDS)), device=self._device)
        averager.broadcast(generation, source, [lengths])
        total = int(lengths.sum())
        filled = None if parcel is None else _filled(parcel.views(), total)
        whole = torch.empty(total if wanted else 0, dtype=torch.uint8)
        piece = torch.empty(min(total, PIECE_BYTES), dtype=torch.uint8, device=self._device)
        for start in range(0, total, PIECE_BYTES):
            part = piece[: min(PIECE_BYTES, total - start)]
            if filled is not None:
                part.copy_(next(filled))
            averager.broadcast(generation, source, [part])
            if wanted:
                whole[start : start + len(part)].copy_(part)
        return [lengths.cpu(), whole] if wanted else []

    def adopt(self, lengths: Tensor, whole: Tensor) -> None:
        """Put it into this rank. FlodlError with the source's reason where there is none; ConfigError for the first
        difference to what was built here."""
        data, at, parts = whole.numpy().data, 0, []
        for length in lengths.tolist():
            parts.append(bytes(data[at : at + length]))
            at += length
        plain, *members = parts
        told = msgspec.json.decode(plain)
        if "trouble" in told:
            raise FlodlError(f"what the others hold cannot be handed on: {told['trouble']}")
        self._state.apply({kind: part for kind, part in zip(KINDS, members, strict=True) if part}, told)


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
