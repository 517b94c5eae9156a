"""Flat vectors with a view for each tensor: the only form in which weights are copied, summed and blended."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flodl.engine.averaging.layout import Layout, Slot

__all__ = ["Flat", "add", "copy", "copy_vectors", "first_nonfinite"]


class Flat:
    """Vectors of a layout, with `tail` extra elements at the end of the last one (it has the highest precision).

    parameters, buffers: per vector, the flat part of each; values: both. means, variances: those of normalisation
    layers. parameter_views, buffer_views: one contiguous view per slot. Never aliases a model: reading and writing
    copy element by element, whatever strides the model has.
    """

    def __init__(self, layout: Layout, *, tail: int = 0, device: torch.device | None = None) -> None:
        self.layout = layout
        last = len(layout.dtypes) - 1
        pinned = device is None and torch.cuda.is_initialized()
        self.vectors: list[Tensor] = []
        self.parameters: list[Tensor] = []
        self.buffers: list[Tensor] = []
        self.values: list[Tensor] = []
        self.means: list[Tensor] = []
        self.variances: list[Tensor] = []
        for place, dtype in enumerate(layout.dtypes):
            split, end = layout.parameter_sizes[place], layout.parameter_sizes[place] + layout.buffer_sizes[place]
            size = end + (tail if place == last else 0)
            vector = torch.zeros(size, dtype=dtype, device=device, pin_memory=pinned)
            self.vectors.append(vector)
            self.parameters.append(vector[:split])
            self.buffers.append(vector[split:end])
            self.values.append(vector[:end])
            paired = layout.moment_sizes[place]
            self.means.append(vector[split : split + paired])
            self.variances.append(vector[split + paired : split + 2 * paired])
        self.tail = self.vectors[-1][self.vectors[-1].numel() - tail :]
        self.parameter_views = _views(self.parameters, layout.parameter_slots)
        self.buffer_views = _views(self.buffers, layout.buffer_slots)

    @torch.no_grad()
    def read(self) -> None:
        """Copy the model's values in."""
        copy(self.parameter_views, self.layout.parameters)
        self.read_buffers()

    @torch.no_grad()
    def read_buffers(self) -> None:
        """Copy only the model's float buffers in."""
        copy(self.buffer_views, self.layout.buffers)

    def write(self) -> None:
        """Copy the values out to the model."""
        self.write_parameters()
        self.write_buffers()

    @torch.no_grad()
    def write_parameters(self) -> None:
        """Copy only the parameters out to the model, rounding once where it has fewer bits."""
        copy(self.layout.parameters, self.parameter_views)

    @torch.no_grad()
    def write_buffers(self) -> None:
        """Copy only the float buffers out to the model."""
        copy(self.layout.buffers, self.buffer_views)

    def copy_(self, other: Flat) -> None:
        """Take over another one's values (not its tail); from another device, if need be."""
        copy_vectors(self.values, other.values)


def first_nonfinite(flat: Flat) -> str:
    """Name of the first parameter, else float buffer, that holds NaN or Inf; "" where all are finite."""
    if all(_is_finite(part) for part in flat.values):
        return ""
    slots = (*flat.layout.parameter_slots, *flat.layout.buffer_slots)
    views = (*flat.parameter_views, *flat.buffer_views)
    return next(slot.name for slot, view in zip(slots, views, strict=True) if not _is_finite(view))


def _is_finite(part: Tensor) -> bool:
    """Least and greatest element tell it in one pass and without a mask of the whole vector."""
    if not part.numel():
        return True
    return all(math.isfinite(end) for end in torch.stack(torch.aminmax(part)).tolist())  # one transfer from a GPU


def copy_vectors(into: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    """into = source, vector by vector, whatever devices they lie on: from pinned memory without waiting for it."""
    for mine, theirs in zip(into, source, strict=True):
        mine.copy_(theirs, non_blocking=True)


def _views(parts: Sequence[Tensor], slots: Sequence[Slot]) -> list[Tensor]:
    return [parts[slot.vector][slot.start : slot.start + slot.numel].view(slot.shape) for slot in slots]


def add(into: Sequence[Tensor], values: Sequence[Tensor], factor: float = 1.0) -> None:
    """into += factor * values, tensor by tensor; mixed dtypes meet in the wider one and are rounded once."""
    if into:
        torch._foreach_add_(list(into), list(values), alpha=factor)  # pyright: ignore[reportPrivateImportUsage]


def copy(into: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    """into = source, tensor by tensor, in as few operations as the device allows."""
    if into:
        torch._foreach_copy_(list(into), list(source))  # pyright: ignore[reportPrivateImportUsage]
