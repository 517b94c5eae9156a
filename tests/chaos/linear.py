"""A project of one's own whose training can be told in closed form. It is copied beside runs.

The model holds one weight per sample and the loss of a batch is minus the mean of its samples' weights: plain SGD adds
lr / batch size to each of them, whatever the weights are. So a weight at the end says how often its sample was learnt
from, and with which share in which averaging.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.datasets.splits import Splits

__all__ = ["Learn", "OneWeightEach", "numbers"]


def numbers(*, samples: int, judged: int) -> Splits:
    """Sample i is its number."""
    every = torch.arange(samples)
    return Splits(train=TensorDataset(every), eval=TensorDataset(every[:judged]))


class OneWeightEach(nn.Module):
    """sample's number -> its weight."""

    def __init__(self, *, samples: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(samples))

    def forward(self, numbers: Tensor) -> Tensor:
        return self.weight[numbers]


class Learn:
    """A step of `seconds`. It remembers what it has met, so that replicas can be compared while a run goes on.

    poison: the loss of a batch that holds this sample is not a number; -1: none is.
    """

    def __init__(self, *, seconds: float = 0.0, poison: int = -1) -> None:
        self.seconds, self.poison = seconds, poison
        self.met: list[str] = []

    def __call__(self, model: nn.Module, batch: tuple[Tensor]) -> Tensor:
        time.sleep(self.seconds)
        self.met.append(digest(model))
        factor = float("nan") if bool((batch[0] == self.poison).any()) else -1.0
        return factor * model(batch[0]).mean()

    def metrics(self, model: nn.Module, batch: tuple[Tensor]) -> dict[str, Tensor]:
        """What the model is, as a figure that a float32 holds exactly; and all that was met goes into a file."""
        Path(f"met.{os.getpid()}").write_text("\n".join(self.met))
        return {"digest": torch.tensor(float(int(digest(model)[:6], 16)))}


def digest(model: nn.Module) -> str:
    values = next(model.parameters()).detach().numpy().tobytes()
    return hashlib.blake2b(values, digest_size=8).hexdigest()
