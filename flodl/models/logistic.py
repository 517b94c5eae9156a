"""Multinomial logistic regression: one linear layer, a convex problem."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["Logistic"]


class Logistic(nn.Module):
    """Flattened input, one logit per class."""

    def __init__(self, *, in_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(in_shape), num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, *in_shape) -> logits (batch, num_classes)."""
        return self.linear(images.flatten(1))
