"""Tensors as a safetensors file in pieces: nothing is copied once more for it, and it can be sent while it is made.

Complex tensors are stored as real ones with a last dimension of 2 (the format has no complex128); the metadata lists
them. The largest elements come first, so that every tensor is aligned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from flodl.errors import FlodlError

__all__ = ["num_bytes", "pieces", "tensors_of"]

COMPLEX = "complex"
ALIGNMENT = 8
_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip


def pieces(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[memoryview]:
    """The file's bytes: a header, then each tensor's elements. The tensors must be contiguous and on the CPU.
    metadata: more words for the header.

    Raises FlodlError for a dtype that cannot be stored.
    """
    real = _real(tensors)
    yield memoryview(_header(tensors, real, metadata or {}))
    for tensor in real.values():
        if tensor.numel():
            yield tensor.reshape(-1).view(torch.uint8).numpy().data


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The size of the whole file."""
    real = _real(tensors)
    return len(_header(tensors, real, {})) + sum(tensor.nbytes for tensor in real.values())


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


def _real(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    real = {name: torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for name, t in tensors.items()}
    return dict(sorted(real.items(), key=lambda pair: (-pair[1].element_size(), pair[0])))


def _header(tensors: Mapping[str, Tensor], real: Mapping[str, Tensor], more: Mapping[str, str]) -> bytes:
    complex_ones = sorted(name for name, tensor in tensors.items() if tensor.is_complex())
    metadata = {"format": "pt", **more, **({COMPLEX: json.dumps(complex_ones)} if complex_ones else {})}
    rows: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, tensor in real.items():
        if tensor.dtype not in _CODES:
            raise FlodlError(f"{name} is of {str(tensor.dtype).removeprefix('torch.')}, which no bundle can hold")
        rows[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
