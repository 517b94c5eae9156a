"""The bundle that a run goes on from, on its way into the ranks: one fetches it, hands it to all, all adopt it."""

from __future__ import annotations

import msgspec
from torch import Tensor

from flodl.engine.bundle import TrainingState
from flodl.engine.orders import Link
from flodl.engine.parcel import Parcel, opened
from flodl.record.bundle_names import KINDS, PLAIN, Kind, upload_name

__all__ = ["Resuming"]


class Resuming:
    """state: what it is put back into. remarks: what of the bundle this run does not use, and what it lacks."""

    def __init__(self, link: Link, state: TrainingState) -> None:
        self.remarks: tuple[str, ...] = ()
        self._link, self._state = link, state
        self._parts: list[bytearray] = []

    def fetch(self, round_: int) -> None:
        """Get the bundle of that round from the controller; once."""
        if not self._parts:
            self._parts = [self._link.download(upload_name(round_, kind)) for kind in (PLAIN, *KINDS)]

    def packed(self) -> Parcel:
        """All that was fetched, for every rank."""
        if not self._parts:
            raise ValueError("a bundle is fetched before it is spread")
        parts, self._parts = self._parts, []
        return Parcel([len(part) for part in parts], [memoryview(part) for part in parts])

    def adopt(self, lengths: Tensor, whole: Tensor) -> None:
        """Put it back. Raises ConfigError for the first difference to what was built here."""
        plain, *members = opened(lengths, whole)
        found: dict[Kind, bytes] = {kind: member for kind, member in zip(KINDS, members, strict=True) if member}
        self.remarks = self._state.apply(found, msgspec.json.decode(plain))
