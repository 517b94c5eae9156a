"""Optical digits: 1797 grey images of 8x8 pixels in ten classes (UCI, CC BY 4.0; see data/DIGITS.md).

The bundled file is digits.npz: images uint8 (1797, 8, 8) of 0..16, labels uint8 (1797,).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from flodl.datasets.splits import Splits, require
from flodl.errors import ConfigError, Problem

__all__ = ["digits"]

BUNDLED = Path(__file__).parent / "data" / "digits.npz"
# Of the whole set, rounded. Constants, because a mean computed on each host may differ in its last bit.
PIXEL_MEAN = 4.884
PIXEL_STD = 6.017
SPLIT_SEED = 0


def digits(
    *,
    image_shape: Sequence[int] = (1, 8, 8),
    num_classes: int = 10,
    num_eval: int = 300,
    file: str | None = None,
) -> Splits:
    """Normalised images float32 (n, 1, 8, 8) and labels int64 (n,), split the same way every time.

    num_eval: samples held back for evaluation, of each class equally many. file: another copy of digits.npz; None:
    the bundled one. The file is ordered by writer, the split is not: the same hands are in both parts, as in most
    published figures on this set.
    Raises ConfigError for arguments that do not fit the data, FileNotFoundError for a missing file.
    """
    with np.load(BUNDLED if file is None else Path(file), allow_pickle=False) as arrays:
        pixels, classes = arrays["images"], arrays["labels"]
    require("image_shape", image_shape, [1, *pixels.shape[1:]])
    require("num_classes", num_classes, int(classes.max()) + 1)
    if not 0 < num_eval < len(pixels):
        constraint = f"must leave samples on both sides of {len(pixels)}"
        raise ConfigError([Problem(key="dataset.num_eval", value=str(num_eval), constraint=constraint)])
    images = torch.from_numpy((pixels.astype(np.float32) - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_STD))
    labels = torch.from_numpy(classes.astype(np.int64))
    held, kept = _split(classes, num_eval)
    return Splits(
        train=TensorDataset(images[kept].unsqueeze(1), labels[kept]),
        eval=TensorDataset(images[held].unsqueeze(1), labels[held]),
    )


def _split(classes: np.ndarray, num_eval: int) -> tuple[Tensor, Tensor]:
    """Indices of the evaluation and of the training part: shuffled, then dealt out class by class in turn."""
    shuffled = np.random.RandomState(SPLIT_SEED).permutation(len(classes))
    turn = np.empty(len(classes), dtype=np.int64)
    for label in np.unique(classes):
        of_class = classes[shuffled] == label
        turn[of_class] = np.arange(of_class.sum())
    dealt = torch.from_numpy(shuffled[np.argsort(turn, kind="stable")])
    return dealt[:num_eval], dealt[num_eval:]
