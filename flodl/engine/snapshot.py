"""What a run stands on at one moment, copied to the host; made into files later and elsewhere.

The training thread only copies. From a GPU the copies leave on a side stream while the thread goes on; the GPU itself
takes its next step after they have left (milliseconds, and no second copy of everything has to fit beside the first).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from flodl.engine.tensorfile import num_bytes, pieces
from flodl.record.bundle_names import KINDS, Kind

__all__ = ["Copier", "Snapshot"]


class Snapshot:
    """Host copies of all that a bundle holds. plain: what of it is no tensor, as JSON."""

    def __init__(
        self, members: Mapping[Kind, dict[str, Tensor]], plain: dict[str, Any], arrived: torch.cuda.Event | None
    ) -> None:
        self.plain = plain
        self._members = {kind: tensors for kind, tensors in members.items() if tensors}
        self._arrived = arrived

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The members there are."""
        return tuple(kind for kind in KINDS if kind in self._members)

    def freeze(self) -> Snapshot:
        """Block this thread until every copy has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self

    def tensor(self, name: str, kind: Kind = "model") -> Tensor:
        """One of a member's, the model's or another one."""
        return self._members[kind][name]

    def has(self, name: str, kind: Kind) -> bool:
        """Whether there is such a tensor."""
        return name in self._members.get(kind, {})

    def num_bytes(self, kind: Kind) -> int:
        """The size of a member's file."""
        return num_bytes(self._members[kind])

    def chunks(self, kind: Kind) -> Iterator[memoryview]:
        """A member's file, piece by piece. Only after `freeze`."""
        return pieces(self._members[kind])


class Copier:
    """Takes contiguous host copies; those from a GPU arrive once the event of `leave` has happened."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._has_begun = False

    @torch.no_grad()
    def take(self, tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A copy of the tensor, in another dtype where one is named."""
        source, kind = tensor.detach(), dtype or tensor.dtype
        if self._stream is None or source.device.type != "cuda":
            return torch.empty(source.shape, dtype=kind).copy_(source)
        if not self._has_begun:
            self._stream.wait_stream(torch.cuda.current_stream(source.device))
            self._has_begun = True
        copy = torch.empty(source.shape, dtype=kind, pin_memory=True)
        with torch.cuda.stream(self._stream):
            return copy.copy_(source.to(kind), non_blocking=True)

    def leave(self) -> torch.cuda.Event | None:
        """All that was to be taken is on its way. None where it is there already."""
        if self._stream is None or not self._has_begun:
            return None
        self._has_begun = False
        event = torch.cuda.Event()
        event.record(self._stream)
        torch.cuda.current_stream(self._stream.device).wait_event(event)
        return event
