"""CIFAR-10, the binary version: 60,000 colour images of 32x32 pixels in ten classes (Krizhevsky 2009).

Each record is a byte of label and 3072 bytes of pixels: red, green and blue plane, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's own habit
from torch.utils.data import Dataset, TensorDataset

from flodl.datasets.files import find_files
from flodl.datasets.splits import Splits, require
from flodl.errors import NotReady

__all__ = ["Augmented", "cifar10"]

SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32
MAX_BYTES = 1 << 28  # a file of the real set has 30,730,000
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
EVAL = "test_batch.bin"
# Of the training pixels, 0..1, per channel.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
PADDING = 4  # pixels on each side, of which a random 32x32 is cut
SOURCE = "CIFAR-10 is at https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz (the binary version; unpack it there)"


def cifar10(
    *, folders: Sequence[str], image_shape: Sequence[int] = SHAPE, num_classes: int = 10, augment: bool = True
) -> Splits:
    """Images float32 (n, 3, 32, 32), normalised per channel; labels int64 (n,); 50,000 and 10,000 of them.

    folders: where the six files may be; the first that has all is used. augment: training images are shifted by up
    to four pixels and mirrored at random, which reads them one by one.
    Raises MissingDataError, NotReady for files that are something else, ConfigError for arguments that do not fit.
    """
    require("image_shape", image_shape, list(SHAPE))
    require("num_classes", num_classes, 10)
    files = find_files(folders, {name: (name,) for name in (*TRAIN, EVAL)}, SOURCE)
    pixels, labels = _read([files[name] for name in TRAIN])
    train = Augmented(pixels, labels) if augment else TensorDataset(_normalised(pixels), labels)
    held_pixels, held_labels = _read([files[EVAL]])
    return Splits(train=train, eval=TensorDataset(_normalised(held_pixels), held_labels))


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Images uint8 (n, 3, 32, 32) and labels; each look at an image shifts and mirrors it anew."""

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels = pixels
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        left, top = torch.randint(0, 2 * PADDING + 1, (2,)).tolist()
        is_mirrored = bool(torch.randint(0, 2, ()))
        image = F.pad(_normalised(self.pixels[index]), (PADDING,) * 4)
        image = image[:, top : top + SHAPE[1], left : left + SHAPE[2]]
        return image.flip(-1) if is_mirrored else image, self.labels[index]


def _read(paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """Pixels uint8 (n, 3, 32, 32) and labels int64 (n,) of all files."""
    records = np.concatenate([_records(path) for path in paths])
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, *SHAPE))
    return pixels, torch.from_numpy(records[:, 0].astype(np.int64))


def _records(path: Path) -> np.ndarray:
    size = path.stat().st_size
    if not size or size % RECORD_BYTES or size > MAX_BYTES:
        raise NotReady(f"{path}: has {size} bytes, which are no whole records of {RECORD_BYTES} (binary version)")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD_BYTES)
    if records[:, 0].max() > 9:
        raise NotReady(f"{path}: has a label of {records[:, 0].max()}, classes are 0 to 9")
    return records


def _normalised(pixels: Tensor) -> Tensor:
    """uint8 (..., 3, height, width) -> float32, each channel of mean 0 and deviation 1 over the training set."""
    shape = (3, 1, 1)
    return pixels.float().div_(255.0).sub_(torch.tensor(MEAN).view(shape)).div_(torch.tensor(STD).view(shape))
