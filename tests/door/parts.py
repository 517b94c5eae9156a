"""A project of one's own, as a program would hand it to `Trainer`: top-level functions and classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset


class Net(nn.Sequential):
    def __init__(self, *, width: int = 8) -> None:
        super().__init__(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


class Shop:
    @staticmethod
    def make() -> Net:
        return Net(width=3)


def points(*, samples: int = 320, seed: int = 0) -> TensorDataset:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=stream)
    return TensorDataset(x, (x[:, 0] > 0).long())


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1)


def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def lonely(ctx: Any) -> None:
    """A loop that needs no data."""
