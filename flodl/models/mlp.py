"""A multilayer perceptron: the smallest model that learns something."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["MLP"]


class MLP(nn.Module):
    """Flattened input, hidden layers with ReLU and dropout, one logit per class."""

    def __init__(
        self,
        *,
        in_shape: Sequence[int],
        num_classes: int,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [math.prod(in_shape), *hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for width, next_width in itertools.pairwise(widths):
            layers += [nn.Linear(width, next_width), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, *in_shape) -> logits (batch, num_classes)."""
        return self.layers(images)
