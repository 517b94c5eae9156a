"""Gaussian classes: a data set of any size and shape that needs no file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import TensorDataset

from flodl.datasets.splits import Splits

__all__ = ["synthetic"]


def synthetic(
    *,
    image_shape: Sequence[int] = (1, 8, 8),
    num_classes: int = 10,
    num_samples: int = 4096,
    num_eval: int = 512,
    noise: float = 2.0,
    seed: int = 0,
) -> Splits:
    """Each class is a random image of unit variance, each sample its class's image plus noise, scaled to unit variance.

    Inputs float32 (n, *image_shape), labels int64 (n,). noise: standard deviation per pixel; the larger, the harder.
    Numpy's legacy stream, so that the data is the same under every release of numpy and torch.
    """
    stream = np.random.RandomState(seed)
    total = num_samples + num_eval
    prototypes = stream.standard_normal((num_classes, *image_shape))
    labels = stream.randint(0, num_classes, total)
    values = stream.standard_normal((total, *image_shape)) * noise + prototypes[labels]
    inputs = torch.from_numpy((values / np.sqrt(1.0 + noise**2)).astype(np.float32))
    targets = torch.from_numpy(labels.astype(np.int64))
    return Splits(
        train=TensorDataset(inputs[:num_samples], targets[:num_samples]),
        eval=TensorDataset(inputs[num_samples:], targets[num_samples:]) if num_eval else None,
    )
