"""A convolutional autoencoder: an image through a narrow code and back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["ConvAutoencoder"]


class ConvAutoencoder(nn.Module):
    """Strided convolutions and a linear layer down to `code` numbers, the same way back with transposed ones.

    channels: of each stage, which halves the image. The last layer is linear: inputs are normalised, not within 0..1.
    Raises ValueError for an image that cannot be halved that often without a rest.
    """

    def __init__(self, *, in_shape: Sequence[int], channels: Sequence[int] = (16, 32), code: int = 32) -> None:
        super().__init__()
        depth, height, width = in_shape
        if height % 2 ** len(channels) or width % 2 ** len(channels):
            raise ValueError(
                f"channels={list(channels)} halve an image {len(channels)} times: in_shape={list(in_shape)} must be "
                f"divisible by {2 ** len(channels)}"
            )
        stages = [depth, *channels]
        inner = (stages[-1], height >> len(channels), width >> len(channels))
        encoder: list[nn.Module] = []
        for before, after in itertools.pairwise(stages):
            encoder += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        self.encoder = nn.Sequential(*encoder, nn.Flatten(), nn.Linear(math.prod(inner), code))
        decoder: list[nn.Module] = [nn.Linear(code, math.prod(inner)), nn.ReLU(), nn.Unflatten(1, inner)]
        for before, after in itertools.pairwise(reversed(stages)):
            decoder += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(*decoder[:-1])

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, *in_shape) -> reconstructions of the same shape."""
        return self.decoder(self.encoder(images))
