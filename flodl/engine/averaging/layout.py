"""Which tensors of a model take part in averaging, and where each lies in a flat vector.

Rules of this room: every value that is averaged goes through a flat, contiguous vector that we packed ourselves
(an all-reduce of a strided view is silently wrong, mixed memory formats add the wrong elements). One vector of
float32 and, where the model holds float64, one of float64; bf16 and fp16 are accumulated in float32. What shares
memory is packed once; frozen parameters and integer buffers keep their local value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from flodl.errors import NotReady

__all__ = ["Layout", "Slot", "fingerprint", "model_layout", "num_parameters", "unshared"]


@dataclass(frozen=True)
class Slot:
    """One tensor's place: elements start..start+numel-1 of its part of the vector `vector`."""

    name: str
    vector: int
    start: int
    shape: torch.Size

    @property
    def numel(self) -> int:
        return self.shape.numel()


@dataclass(frozen=True)
class Layout:
    """Places of a model's tensors in flat vectors: in each vector parameters first, then float buffers.

    dtypes: of the vectors (float32, then float64; only those needed, at least one). parameter_sizes, buffer_sizes:
    elements per vector. parameters, buffers: the live tensors (real views), in slot order. moments: index pairs
    (mean, variance) into `buffers` of normalisation layers: all means come first, then all variances in the same order,
    then the other buffers, so that a vector's means and its variances are two slices. moment_sizes: elements per vector
    of either.
    """

    dtypes: tuple[torch.dtype, ...]
    parameter_slots: tuple[Slot, ...]
    buffer_slots: tuple[Slot, ...]
    parameter_sizes: tuple[int, ...]
    buffer_sizes: tuple[int, ...]
    parameters: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    moments: tuple[tuple[int, int], ...]
    moment_sizes: tuple[int, ...]


def num_parameters(model: nn.Module) -> int:
    """Elements of all parameters, frozen ones too, shared ones once."""
    return sum(tensor.numel() for _, tensor in unshared(model.named_parameters()))


def fingerprint(model: nn.Module) -> str:
    """Hash of (name, shape, dtype, trainable, shared with an earlier one) of all parameters and buffers."""
    kept = {name for name, _ in unshared([*model.named_parameters(), *model.named_buffers()])}
    rows = [
        (name, list(tensor.shape), str(tensor.dtype), tensor.requires_grad, name in kept)
        for named in (model.named_parameters(), model.named_buffers())
        for name, tensor in named
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def model_layout(model: nn.Module, *, with_buffers: bool = True) -> Layout:
    """The layout of `model`'s trainable parameters and, unless left local, its float buffers.

    Raises NotReady where two parameters overlap in memory without one holding the other.
    """
    parameters = list(unshared((n, p) for n, p in model.named_parameters() if p.requires_grad))
    floats = list(unshared((n, b) for n, b in model.named_buffers() if _is_float(b))) if with_buffers else []
    means, variances, others = _by_moment(floats)
    buffers = [*means, *variances, *others]
    wanted = {_flat_dtype(tensor) for _, tensor in (*parameters, *buffers)} or {torch.float32}
    dtypes = tuple(dtype for dtype in (torch.float32, torch.float64) if dtype in wanted)
    parameter_slots, parameter_sizes = _place(parameters, dtypes)
    buffer_slots, buffer_sizes = _place(buffers, dtypes)
    _, moment_sizes = _place(means, dtypes)
    return Layout(
        dtypes=dtypes,
        parameter_slots=parameter_slots,
        buffer_slots=buffer_slots,
        parameter_sizes=parameter_sizes,
        buffer_sizes=buffer_sizes,
        parameters=tuple(_real(tensor) for _, tensor in parameters),
        buffers=tuple(_real(tensor) for _, tensor in buffers),
        moments=tuple((place, len(means) + place) for place in range(len(means))),
        moment_sizes=moment_sizes,
    )


def unshared(named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The tensors whose memory no earlier one holds already (tied weights come once, under their first name)."""
    seen: dict[tuple[int, torch.dtype], Tensor] = {}
    for name, tensor in named:
        storage = tensor.untyped_storage()
        if not storage.size():
            continue
        size = storage.size() // tensor.element_size()
        key = (storage.data_ptr(), tensor.dtype)
        used = seen.setdefault(key, torch.zeros(size, dtype=torch.bool))
        mine = used.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        if bool(mine.all()):
            continue
        if bool(mine.any()):
            raise NotReady(f"{name} overlaps another parameter or buffer in memory; clone it, or tie it whole")
        mine.fill_(True)
        yield name, tensor


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _real(tensor: Tensor) -> Tensor:
    """The tensor itself; of a complex one the real view (last dimension 2)."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def _flat_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype in (torch.float64, torch.complex128) else torch.float32


def _place(
    named: Iterable[tuple[str, Tensor]], dtypes: tuple[torch.dtype, ...]
) -> tuple[tuple[Slot, ...], tuple[int, ...]]:
    """One slot per tensor, and the elements that each vector needs for them."""
    sizes = [0] * len(dtypes)
    slots: list[Slot] = []
    for name, tensor in named:
        vector = dtypes.index(_flat_dtype(tensor))
        shape = torch.Size((*tensor.shape, 2)) if tensor.is_complex() else tensor.shape
        slots.append(Slot(name, vector, sizes[vector], shape))
        sizes[vector] += shape.numel()
    return tuple(slots), tuple(sizes)


_Named = list[tuple[str, Tensor]]


def _by_moment(buffers: _Named) -> tuple[_Named, _Named, _Named]:
    """Means, the variances that belong to them, and the rest.

    running_mean and running_var of one module: known by name, as every normalisation layer has them.
    """
    held = dict(buffers)
    means, variances = list[tuple[str, Tensor]](), list[tuple[str, Tensor]]()
    for name, tensor in buffers:
        stem, _, last = name.rpartition("running_mean")
        partner = stem + "running_var"
        if last == "" and partner in held and _is_alike(tensor, held[partner]):
            means.append((name, tensor))
            variances.append((partner, held[partner]))
    paired = {name for name, _ in (*means, *variances)}
    return means, variances, [(name, tensor) for name, tensor in buffers if name not in paired]


def _is_alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and _flat_dtype(one) == _flat_dtype(other)
