"""What a rank that comes back is handed: all that a bundle of the newest round would hold, through the group."""

from __future__ import annotations

from itertools import chain

import msgspec
import torch
from torch import Tensor

from flodl.engine.bundle import TrainingState
from flodl.engine.parcel import Parcel, Way, opened
from flodl.engine.snapshot import Snapshot
from flodl.errors import FlodlError
from flodl.ports import Averager
from flodl.record.bundle_names import KINDS

__all__ = ["Handing"]


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
        return Way(averager, generation, source, self._device).spread(_packed(mine), wanted=wanted)

    def adopt(self, lengths: Tensor, whole: Tensor) -> None:
        """Put it into this rank. FlodlError with the source's reason where there is none; ConfigError for the first
        difference to what was built here."""
        plain, *members = opened(lengths, whole)
        told = msgspec.json.decode(plain)
        if "trouble" in told:
            raise FlodlError(f"what the others hold cannot be handed on: {told['trouble']}")
        self._state.apply({kind: part for kind, part in zip(KINDS, members, strict=True) if part}, told)


def _packed(mine: Snapshot | FlodlError | None) -> Parcel | None:
    """A snapshot's parts, or the words why there is none."""
    if mine is None:
        return None
    if isinstance(mine, FlodlError):
        head = msgspec.json.encode({"trouble": str(mine)})
        return Parcel([len(head), *(0 for _ in KINDS)], [memoryview(head)])
    held = mine.freeze()
    head = msgspec.json.encode(held.plain)
    members = [list(held.chunks(kind)) if kind in held.kinds else [] for kind in KINDS]
    sizes = [sum(len(view) for view in views) for views in members]
    return Parcel([len(head), *sizes], [memoryview(head), *chain.from_iterable(members)])
