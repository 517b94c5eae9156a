"""A small GPT: a decoder-only transformer with normalisation before each part (Radford et al. 2019, GPT-2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own habit

__all__ = ["GPT", "Attention", "Block"]

INIT_STD = 0.02  # GPT-2's


class Attention(nn.Module):
    """Causal self-attention of several heads: a position sees itself and what is before it."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) -> the same shape."""
        batch, time, width = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.num_heads, width // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width of a head)
        dropout = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention, then a perceptron of four times the width; each is normalised before and added to its input."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, num_heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, time, width) -> the same shape."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Token and position embeddings, `depth` blocks, one logit per token of the vocabulary.

    block_size: the longest input. tied: the head's weights are the token embedding's. Weights begin as GPT-2's do:
    normal of 0.02, and the layers that end a residual branch less, by the square root of the branches.
    Raises ValueError where the heads do not divide the width.
    """

    def __init__(  # noqa: PLR0913  each is a key of the config
        self,
        *,
        vocab_size: int,
        block_size: int,
        width: int = 128,
        depth: int = 4,
        num_heads: int = 4,
        dropout: float = 0.0,
        tied: bool = True,
    ) -> None:
        super().__init__()
        if width % num_heads:
            raise ValueError(f"width={width} must be a multiple of num_heads={num_heads}")
        self.block_size = block_size
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(block_size, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, num_heads, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.apply(_begin)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.2.weight")):
                nn.init.normal_(weight, std=INIT_STD / math.sqrt(2 * depth))

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens int64 (batch, time) -> logits (batch, time, vocab_size), each of the next token.

        Raises ValueError for more than block_size positions.
        """
        time = tokens.shape[1]
        if time > self.block_size:
            raise ValueError(f"{time} positions are more than block_size={self.block_size}")
        positions = torch.arange(time, device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


def _begin(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
