"""IDX, the file format of MNIST and its relatives: two zero bytes, a type, the number of dimensions, each dimension
as a big-endian number of four bytes, then the values. Plain or gzip, told apart by their first bytes.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from flodl.errors import NotReady

__all__ = ["read_idx"]

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTES = 0x08
GZIP_MAX_RATIO = 1032  # deflate cannot do better
MAX_BYTES = 1 << 32
CHUNK_BYTES = 1 << 20


def read_idx(path: Path, item_shape: Sequence[int]) -> np.ndarray:
    """The items of the file, uint8 (n, *item_shape), writable.

    What the header states is checked before memory is taken for it: type, item shape, and that the file can hold so
    much. Raises NotReady for a file that is not what was expected, FileNotFoundError for a missing one.
    """
    size = path.stat().st_size
    with path.open("rb") as raw:
        is_packed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        try:
            if not is_packed:
                return _read(raw, path, item_shape, size, is_packed=False)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _read(unpacked, path, item_shape, size, is_packed=True)
        except (EOFError, gzip.BadGzipFile, OSError) as error:
            raise NotReady(f"{path}: cannot be read: {error}") from error


def _read(
    file: IO[bytes] | gzip.GzipFile, path: Path, item_shape: Sequence[int], size: int, *, is_packed: bool
) -> np.ndarray:
    length, header_bytes = _header(file, path, list(item_shape))
    num_bytes = length * math.prod(item_shape)
    room = size * GZIP_MAX_RATIO if is_packed else size - header_bytes
    if num_bytes > min(room, MAX_BYTES) or (not is_packed and num_bytes != room):
        raise NotReady(f"{path}: its header states {num_bytes} bytes of data, a file of {size} bytes cannot hold that")
    data = bytearray()
    while len(data) <= num_bytes and (chunk := file.read(CHUNK_BYTES)):
        data += chunk
    if len(data) != num_bytes:
        raise NotReady(f"{path}: its header states {num_bytes} bytes of data, it has {len(data)} or more")
    return np.frombuffer(data, dtype=np.uint8).reshape(length, *item_shape)


def _header(file: IO[bytes] | gzip.GzipFile, path: Path, item_shape: list[int]) -> tuple[int, int]:
    """Number of items, and bytes of the header."""
    num_dims = 1 + len(item_shape)
    header = file.read(4 + 4 * num_dims)
    if len(header) < 4 + 4 * num_dims or header[:2] != b"\0\0":
        raise NotReady(f"{path}: is no IDX file")
    if header[2] != UNSIGNED_BYTES or header[3] != num_dims:
        raise NotReady(
            f"{path}: holds type 0x{header[2]:02x} in {header[3]} dimensions, expected were unsigned bytes (0x08) in "
            f"{num_dims}"
        )
    length, *shape = (int.from_bytes(header[at : at + 4], "big") for at in range(4, len(header), 4))
    if shape != item_shape:
        raise NotReady(f"{path}: holds items of {shape}, expected were {item_shape}")
    return length, len(header)
