"""Small files in the formats of the real sets."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from flodl.datasets.cifar import EVAL, TRAIN


def idx(array: np.ndarray, *, stated: tuple[int, ...] | None = None) -> bytes:
    """An IDX file of unsigned bytes. stated: another shape in its header."""
    shape = array.shape if stated is None else stated
    header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    return header + array.astype(np.uint8).tobytes()


def mnist_like(folder: Path, *, num_train: int = 40, num_eval: int = 20, packed: bool = True) -> Path:
    """Four IDX files of random images, gzipped or plain."""
    folder.mkdir(parents=True, exist_ok=True)
    stream = np.random.RandomState(0)
    for stem, count in (("train", num_train), ("t10k", num_eval)):
        files = {
            "images-idx3": stream.randint(0, 256, (count, 28, 28)),
            "labels-idx1": np.arange(count) % 10,
        }
        for name, array in files.items():
            data = idx(array)
            path = folder / f"{stem}-{name}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
    return folder


def cifar_like(folder: Path, *, per_file: int = 20) -> Path:
    """The six files of CIFAR-10's binary version: each class has a brightness of its own, plus noise."""
    folder.mkdir(parents=True, exist_ok=True)
    stream = np.random.RandomState(0)
    for name in (*TRAIN, EVAL):
        labels = np.arange(per_file) % 10
        pixels = labels[:, None] * 20 + stream.randint(0, 40, (per_file, 3072))
        (folder / name).write_bytes(np.concatenate([labels[:, None], pixels], axis=1).astype(np.uint8).tobytes())
    return folder


__all__ = ["cifar_like", "idx", "mnist_like"]
