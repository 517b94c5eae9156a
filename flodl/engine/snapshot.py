"""What a run stands on at one moment, copied to the host; made into files later and elsewhere.

The training thread only copies, and into few buffers: tensors lie in them end to end, in the order of their file. From
a GPU the copies leave on a side stream while the thread goes on; the GPU itself takes its next step after they have
left (milliseconds, and no second copy of everything has to fit beside the first).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flodl.engine.tensorfile import bytes_of, head_of, in_order, real
from flodl.record.bundle_names import KINDS, Kind

__all__ = ["Copier", "Copies", "Snapshot", "Source", "source"]

BUFFER_BYTES = 64 << 20  # pinned memory comes in powers of two: a large buffer might waste half of it


Form = tuple[torch.Size, torch.dtype, bool]  # as it is stored; whether pairs of its numbers are one


class Source(NamedTuple):
    """What is to be copied, as real numbers; dtype: of the copy. is_complex: pairs of them are one number."""

    tensor: Tensor
    dtype: torch.dtype
    is_complex: bool


class Copies(NamedTuple):
    """Host copies in the order of their file. forms: of what was copied, by name. tensors: views of the buffers, which
    hold nothing else."""

    forms: Mapping[str, Form]
    tensors: Mapping[str, Tensor]
    buffers: Sequence[Tensor]


class Snapshot:
    """Host copies of all that a bundle holds. plain: what of it is no tensor, as JSON."""

    def __init__(self, members: Mapping[Kind, Copies], plain: dict[str, Any], arrived: torch.cuda.Event | None) -> None:
        self.plain = plain
        self.members = dict(members)
        self._arrived = arrived

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The members there are."""
        return tuple(kind for kind in KINDS if kind in self.members)

    def freeze(self) -> Snapshot:
        """Block this thread until every copy has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self

    def chunks(self, kind: Kind, metadata: Mapping[str, str] | None = None) -> Iterator[memoryview]:
        """A member's file, piece by piece. metadata: more words for its head. Only after `freeze`."""
        copies = self.members[kind]
        complex_ones = sorted(name for name, (_, _, is_complex) in copies.forms.items() if is_complex)
        yield memoryview(head_of(copies.tensors, complex_ones, metadata))
        for buffer in copies.buffers:
            yield bytes_of(buffer)


def source(tensor: Tensor, like: Tensor | None = None) -> Source:
    """A tensor to be copied. like: what it stands for, where it is a part of a flat vector: the dtype is that one's,
    and complex ones lie there as real ones."""
    if like is None:
        stored = real(tensor.detach())
        return Source(stored, stored.dtype, tensor.is_complex())
    return Source(tensor, real(like.detach()).dtype, like.is_complex())


class Copier:
    """Takes host copies; those from a GPU arrive once the event of `leave` has happened.

    Memory that was just mapped costs more than the copying: what a snapshot was sent from serves the next one.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._has_begun = False
        self._spare: dict[Kind, Copies] = {}

    @torch.no_grad()
    def take(self, kind: Kind, sources: Mapping[str, Source]) -> Copies:
        """Copies of all tensors of a member."""
        forms = {name: (found.tensor.shape, found.dtype, found.is_complex) for name, found in sources.items()}
        copies = self._spare.pop(kind, None)
        if copies is None or copies.forms != forms:
            copies = _room_for(forms, is_pinned=self._stream is not None)
        self._copy([copies.tensors[name] for name in sources], [found.tensor for found in sources.values()])
        return copies

    def reuse(self, snapshot: Snapshot) -> None:
        """Nobody needs it any more: the next copies may take its place. Any thread."""
        self._spare.update(snapshot.members)

    def _copy(self, views: list[Tensor], tensors: list[Tensor]) -> None:
        if not views:
            return
        if self._stream is None:
            torch._foreach_copy_(views, tensors)  # pyright: ignore[reportPrivateImportUsage]
            return
        for view, tensor in zip(views, tensors, strict=True):
            if tensor.device.type != "cuda":
                view.copy_(tensor)
                continue
            if not self._has_begun:
                self._stream.wait_stream(torch.cuda.current_stream(tensor.device))
                self._has_begun = True
            with torch.cuda.stream(self._stream):
                view.copy_(tensor.to(view.dtype), non_blocking=True)

    def leave(self) -> torch.cuda.Event | None:
        """All that was to be taken is on its way. None where it is there already."""
        if self._stream is None or not self._has_begun:
            return None
        self._has_begun = False
        event = torch.cuda.Event()
        event.record(self._stream)
        torch.cuda.current_stream(self._stream.device).wait_event(event)
        return event


def _room_for(forms: Mapping[str, Form], *, is_pinned: bool) -> Copies:
    """Memory for copies of such tensors."""
    ordered = in_order({name: (dtype.itemsize, (shape, dtype)) for name, (shape, dtype, _) in forms.items()})
    tensors: dict[str, Tensor] = {}
    buffers: list[Tensor] = []
    for names in _runs(ordered):
        shapes, (_, dtype) = [ordered[name][0] for name in names], ordered[names[0]]
        sizes = [shape.numel() for shape in shapes]
        buffers.append(torch.empty(sum(sizes), dtype=dtype, pin_memory=is_pinned))
        views = (part.view(shape) for part, shape in zip(buffers[-1].split(sizes), shapes, strict=True))
        tensors |= zip(names, views, strict=True)
    return Copies(forms, tensors, buffers)


def _runs(ordered: Mapping[str, tuple[torch.Size, torch.dtype]]) -> Iterator[list[str]]:
    """Names of neighbours of one dtype that share a buffer."""
    run: list[str] = []
    kind, room = None, 0
    for name, (shape, dtype) in ordered.items():
        size = shape.numel() * dtype.itemsize
        if run and (dtype != kind or size > room):
            yield run
            run = []
        if not run:
            kind, room = dtype, BUFFER_BYTES
        run.append(name)
        room -= size
    if run:
        yield run
