"""The head of a safetensors file: which tensors lie where. The bytes behind it are nobody's business here.

The format is 8 bytes of length, JSON, and the elements of all tensors end to end, in the order of the JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flodl.errors import FlodlError

__all__ = ["Head", "Row", "encode_head", "read_head"]

METADATA = "__metadata__"
ALIGNMENT = 8
MOST_BYTES = 100_000_000  # the format's own limit: no head is larger


class Row(msgspec.Struct, frozen=True):
    """One tensor. dtype: as the format spells it. data_offsets: its first byte and the one after its last, counted
    from the head's end."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    @property
    def num_bytes(self) -> int:
        """The size of all its elements."""
        return self.data_offsets[1] - self.data_offsets[0]

    @property
    def element_bytes(self) -> int:
        """The size of one element; 0 where there is none."""
        return self.num_bytes // (math.prod(self.shape) or 1)


class Head(NamedTuple):
    """A file's head. rows: in the order of their bytes. size: of the head itself."""

    rows: dict[str, Row]
    metadata: dict[str, str]
    size: int


def encode_head(rows: Mapping[str, Row], metadata: Mapping[str, str]) -> bytes:
    """The head's bytes, so long that the elements behind it are aligned."""
    text = msgspec.json.encode({METADATA: metadata, **rows})
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_head(path: Path) -> Head:
    """The head of a file. Raises FlodlError for what is no such file, OSError."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= MOST_BYTES else b""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(found.pop(METADATA, b"{}"), type=dict[str, str])
        rows = {name: msgspec.json.decode(raw, type=Row) for name, raw in found.items()}
    except msgspec.MsgspecError as error:
        raise FlodlError(f"{path}: not a safetensors file: {error}") from error
    return Head(dict(sorted(rows.items(), key=lambda item: item[1].data_offsets)), metadata, 8 + length)
