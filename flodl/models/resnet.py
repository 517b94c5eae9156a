"""Residual networks of the CIFAR family (He et al. 2015, 1512.03385, section 4.2): three stages of n blocks each."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit

__all__ = ["Block", "ResNet"]


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them (a 1x1 convolution where the shape changes)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, channels_in, height, width) -> (batch, channels_out, height / stride, width / stride)."""
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """depth = 6n + 2 layers: a stem and three stages of n blocks, of width, 2 width and 4 width channels.

    depth 20 and width 16 are the paper's ResNet-20. Global pooling makes any image size fit. Raises ValueError for
    a depth that is not 6n + 2.
    """

    def __init__(self, *, in_shape: Sequence[int], num_classes: int, depth: int = 20, width: int = 16) -> None:
        super().__init__()
        num_blocks, rest = divmod(depth - 2, 6)
        if rest or num_blocks < 1:
            raise ValueError(f"depth={depth} must be 6n + 2: 8, 14, 20, 32, 44, 56, ...")
        self.stem = nn.Sequential(
            nn.Conv2d(in_shape[0], width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks: list[Block] = []
        channels = width
        for stage in range(3):
            for index in range(num_blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Block(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """images (batch, *in_shape) -> logits (batch, num_classes)."""
        features = self.blocks(self.stem(images))
        return self.classifier(features.mean(dim=(2, 3)))
