"""A state_dict as safetensors bytes, for two lines of plain PyTorch::

    from safetensors.torch import load_file
    model.load_state_dict(load_file("weights.safetensors"))

No pickle either way. Tied tensors are written under each of their names, because load_state_dict wants every name;
the metadata says which were one (as JSON: name -> name of the first).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from flodl.errors import FlodlError

__all__ = ["bare_name", "from_bytes", "to_bytes"]


def bare_name(name: str) -> str:
    """A tensor's name as the user's own model has it: torch.compile(model) puts a prefix into all of them."""
    return name.replace("_orig_mod.", "")


def to_bytes(state_dict: Mapping[str, Any]) -> bytes:
    """All tensors of `state_dict`, contiguous. Raises FlodlError for an entry that is no dense tensor."""
    tensors: dict[str, Tensor] = {}
    first_name: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for given, value in state_dict.items():
        name = bare_name(given)
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            kind = f"{value.layout} tensor" if isinstance(value, Tensor) else type(value).__name__
            raise FlodlError(f"weights: {name} is a {kind}; only dense tensors can be stored without pickle")
        place = (value.device, value.data_ptr(), value.storage_offset(), value.shape, value.stride(), value.dtype)
        first = first_name.setdefault(place, name) if value.numel() else name
        if first != name:
            tied[name] = first
        # A copy of its own for each name: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
    metadata = {"format": "pt", **({"tied": json.dumps(tied, sort_keys=True)} if tied else {})}
    return save(tensors, metadata=metadata)


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """The tensors of `to_bytes`, on the CPU. Raises FlodlError for anything that is not a whole safetensors file."""
    try:
        return load(data)
    except SafetensorError as error:
        raise FlodlError(f"weights: not a whole safetensors file of {len(data)} bytes: {error}") from error
