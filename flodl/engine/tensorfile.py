"""Tensors as a safetensors file in pieces: nothing is copied once more for it, and it can be sent while it is made.

Complex tensors are stored as real ones with a last dimension of 2 (the format has no complex128); the metadata lists
them. The largest elements come first, so that every tensor is aligned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from flodl.errors import FlodlError
from flodl.record.tensor_header import Row, encode_head
from flodl.record.weights import COMPLEX

__all__ = ["bytes_of", "head_of", "in_order", "pieces", "real", "row_of", "tensors_of"]

_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip

T = TypeVar("T")


def pieces(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    """The file's bytes: a head, then each tensor's elements. The tensors must be contiguous and on the CPU.

    Raises FlodlError for a dtype that cannot be stored.
    """
    stored = in_order({name: (real(tensor).element_size(), real(tensor)) for name, tensor in tensors.items()})
    yield memoryview(head_of(stored, sorted(name for name, tensor in tensors.items() if tensor.is_complex())))
    for tensor in stored.values():
        if tensor.numel():
            yield bytes_of(tensor)


def tensors_of(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU. Raises FlodlError for anything that is not whole."""
    try:
        found = load(data)
    except SafetensorError as error:
        raise FlodlError(f"not a whole safetensors file of {len(data)} bytes: {error}") from error
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    for name in json.loads(metadata.get(COMPLEX, "[]")):
        found[name] = torch.view_as_complex(found[name])
    return found


def real(tensor: Tensor) -> Tensor:
    """The tensor as it is stored."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def in_order(sized: Mapping[str, tuple[int, T]]) -> dict[str, T]:
    """By name, in the order of a file. sized: (bytes of an element, whatever it is)."""
    return {name: found for name, (_, found) in sorted(sized.items(), key=lambda item: (-item[1][0], item[0]))}


def head_of(
    stored: Mapping[str, Tensor], complex_ones: Sequence[str], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The head of a file of these tensors, in this order. metadata: more words for it."""
    rows: dict[str, Row] = {}
    at = 0
    for name, tensor in stored.items():
        rows[name] = row_of(name, tensor, at)
        at = rows[name].data_offsets[1]
    told = {"format": "pt", **(metadata or {}), **({COMPLEX: json.dumps(complex_ones)} if complex_ones else {})}
    return encode_head(rows, told)


def row_of(name: str, tensor: Tensor, at: int = 0) -> Row:
    """What a head says of a tensor whose first byte is `at`. Raises FlodlError for a dtype that cannot be stored."""
    stored = real(tensor)
    if stored.dtype not in _CODES:
        raise FlodlError(f"{name} is of {str(stored.dtype).removeprefix('torch.')}, which no bundle can hold")
    return Row(_CODES[stored.dtype], tuple(stored.shape), (at, at + stored.nbytes))


def bytes_of(tensor: Tensor) -> memoryview:
    """Its elements; it must be contiguous."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
