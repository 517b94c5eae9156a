"""MNIST and Fashion-MNIST: 70,000 grey images of 28x28 pixels in ten classes, as four IDX files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from flodl.datasets.files import find_files
from flodl.datasets.idx import read_idx
from flodl.datasets.splits import Splits, require
from flodl.errors import NotReady

__all__ = ["fashion_mnist", "mnist"]

SIDE = 28
PARTS = {
    f"{part} {what}": (f"{stem}-{what}-idx{dims}-ubyte", f"{stem}-{what}-idx{dims}-ubyte.gz")
    for part, stem in (("train", "train"), ("eval", "t10k"))
    for what, dims in (("images", 3), ("labels", 1))
}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """mean, std: of the training pixels, 0..1; constants, because a mean computed on each host may differ."""

    mean: float
    std: float
    source: str


_MNIST = _Kind(
    mean=0.1307,
    std=0.3081,
    source="MNIST is at https://ossci-datasets.s3.amazonaws.com/mnist/ (four files, plain or .gz)",
)
_FASHION = _Kind(
    mean=0.2860,
    std=0.3530,
    source=(
        "Fashion-MNIST is Debian's and Ubuntu's package dataset-fashion-mnist, or four files (plain or .gz) from "
        "https://github.com/zalandoresearch/fashion-mnist"
    ),
)


def mnist(*, folders: Sequence[str], image_shape: Sequence[int] = (1, SIDE, SIDE), num_classes: int = 10) -> Splits:
    """Handwritten digits. Images float32 (n, 1, 28, 28), normalised; labels int64 (n,); 60,000 and 10,000 of them.

    folders: where the files may be; the first that has all four is used.
    Raises MissingDataError, NotReady for files that are something else, ConfigError for arguments that do not fit.
    """
    return _splits(_MNIST, folders, image_shape, num_classes)


def fashion_mnist(
    *, folders: Sequence[str], image_shape: Sequence[int] = (1, SIDE, SIDE), num_classes: int = 10
) -> Splits:
    """Articles of clothing; otherwise as `mnist`."""
    return _splits(_FASHION, folders, image_shape, num_classes)


def _splits(kind: _Kind, folders: Sequence[str], image_shape: Sequence[int], num_classes: int) -> Splits:
    require("image_shape", image_shape, [1, SIDE, SIDE])
    require("num_classes", num_classes, 10)
    files = find_files(folders, PARTS, kind.source)
    return Splits(train=_part(kind, files, "train"), eval=_part(kind, files, "eval"))


def _part(kind: _Kind, files: Mapping[str, Path], part: str) -> TensorDataset:
    pixels = read_idx(files[f"{part} images"], (SIDE, SIDE))
    labels = read_idx(files[f"{part} labels"], ())
    if len(pixels) != len(labels):
        raise NotReady(f"{files[f'{part} images']} has {len(pixels)} images, {len(labels)} labels are beside it")
    if labels.size and labels.max() > 9:
        raise NotReady(f"{files[f'{part} labels']}: has a label of {labels.max()}, classes are 0 to 9")
    images = torch.from_numpy(pixels.astype(np.float32)).div_(255.0).sub_(kind.mean).div_(kind.std)
    return TensorDataset(images.unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))
