"""LeNet with 20 and 50 channels and 500 hidden units, for images of 4x4 and more."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["LeNet"]


class LeNet(nn.Module):
    """Two convolutions with pooling, two linear layers.

    The convolutions keep the size (padding 2), unlike the original's: an 8x8 image would have nothing left.
    Raises ValueError for images below 4x4.
    """

    def __init__(self, *, in_shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        channels, height, width = in_shape
        if min(height, width) < 4:
            raise ValueError(f"LeNet halves an image twice: in_shape={list(in_shape)} must be at least 4x4")
        self.features = nn.Sequential(
            nn.Conv2d(channels, 20, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(50 * (height // 4) * (width // 4), 500),
            nn.ReLU(),
            nn.Linear(500, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, *in_shape) -> logits (batch, num_classes)."""
        return self.classifier(self.features(images))
