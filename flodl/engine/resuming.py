"""The bundle that a run goes on from, on its way into the ranks: one fetches it, broadcasts it, all adopt it.

It travels as one vector of bytes: the lengths of its parts, then the parts.
"""

from __future__ import annotations

import struct

import msgspec
import torch
from torch import Tensor

from flodl.engine.bundle import TrainingState
from flodl.engine.orders import Link
from flodl.record.bundle_names import PLAIN, Kind, upload_name

__all__ = ["Resuming"]

PARTS: tuple[Kind, ...] = ("model", "outer")
HEAD = struct.Struct("<3Q")


class Resuming:
    """state: what it is put back into. remarks: what of the bundle this run does not use, and what it lacks."""

    def __init__(self, link: Link, state: TrainingState) -> None:
        self.remarks: tuple[str, ...] = ()
        self._link, self._state = link, state
        self._packed: bytearray | None = None

    def fetch(self, round_: int) -> None:
        """Get the bundle of that round from the controller; once."""
        if self._packed is None:
            parts = [self._link.download(upload_name(round_, kind)) for kind in (PLAIN, *PARTS)]
            self._packed = bytearray(HEAD.pack(*map(len, parts)))
            for part in parts:
                self._packed += part

    def packed(self, device: torch.device) -> Tensor:
        """All that was fetched, for the other ranks."""
        if self._packed is None:
            raise ValueError("a bundle is fetched before it is spread")
        whole, self._packed = torch.frombuffer(self._packed, dtype=torch.uint8).to(device), None
        return whole

    def adopt(self, whole: Tensor) -> None:
        """Put it back. Raises ConfigError for the first difference to what was built here."""
        data = whole.cpu().numpy().data
        lengths, at, parts = HEAD.unpack_from(data), HEAD.size, []
        for length in lengths:
            parts.append(bytes(data[at : at + length]))
            at += length
        plain, *members = parts
        found: dict[Kind, bytes] = {kind: member for kind, member in zip(PARTS, members, strict=True) if member}
        self.remarks = self._state.apply(found, msgspec.json.decode(plain))
