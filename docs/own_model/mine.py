"""A model, a data set and a step that flodl knows nothing of: conf/ beside this file names them by import path."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit
from torch.utils.data import Dataset

import flodl

__all__ = ["SpiralNet", "Spirals", "collate", "step"]


class SpiralNet(nn.Module):
    """Any torch.nn.Module will do."""

    def __init__(self, *, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 2)

    def forward(self, points: Tensor) -> Tensor:
        """points (batch, 2) -> logits (batch, 2)."""
        return self.head(self.layers(points))


class Spirals(Dataset[tuple[Tensor, int]]):
    """Points on two spirals, read one by one: __len__ and __getitem__ are all that is needed."""

    def __init__(self, num_samples: int, seed: int) -> None:
        # numpy's legacy stream gives the same numbers on every host; hosts with different data are refused.
        stream = np.random.RandomState(seed)
        self.radius = stream.uniform(0.1, 1.0, num_samples)
        self.noise = stream.normal(0.0, 0.02, (num_samples, 2))

    def __len__(self) -> int:
        return len(self.radius)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        arm, radius = index % 2, self.radius[index]
        angle = 2.0 * np.pi * radius + np.pi * arm
        point = radius * np.array([np.cos(angle), np.sin(angle)]) + self.noise[index]
        return torch.tensor(point, dtype=torch.float32), arm


def collate(samples: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """A batch may be whatever the step understands."""
    points, arms = zip(*samples, strict=True)
    return {"points": torch.stack(points), "arms": torch.tensor(arms)}


def step(model: nn.Module, batch: dict[str, Tensor], *, label_smoothing: float) -> Tensor:
    """The mean loss of a batch. What is recorded here is in metrics.jsonl, reduced over all ranks."""
    logits = model(batch["points"])
    hits = (logits.argmax(dim=1) == batch["arms"]).float()
    flodl.record_scalar("accuracy", hits.mean())
    flodl.record_scalar("largest_logit", logits.detach().abs().max(), reduction="max")
    return F.cross_entropy(logits, batch["arms"], label_smoothing=label_smoothing)
