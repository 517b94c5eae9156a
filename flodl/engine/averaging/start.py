"""Common start: everybody adopts one rank's parameters and buffers, byte for byte, and tells the hash of the result.

The same seed is no common start: `trunc_normal_` gives other numbers in another torch release. Frozen parameters
and integer buffers travel too; averaging never touches them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from flodl.engine.averaging.layout import unshared

__all__ = ["digest", "from_bytes", "start_tensors", "to_bytes"]


def start_tensors(model: nn.Module) -> list[Tensor]:
    """All parameters and buffers, what shares memory once."""
    return [tensor for _, tensor in unshared([*model.named_parameters(), *model.named_buffers()])]


@torch.no_grad()
def to_bytes(tensors: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
    """One uint8 vector of all tensors' elements in order, contiguous, on `device` (default: the CPU)."""
    where = device or torch.device("cpu")
    parts = [tensor.contiguous().reshape(-1).view(torch.uint8).to(where) for tensor in tensors if tensor.numel()]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=where)


@torch.no_grad()
def from_bytes(joined: Tensor, tensors: Sequence[Tensor]) -> None:
    """The inverse of `to_bytes`: write the elements back, whatever strides the tensors have."""
    start = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        part = joined[start : start + size].clone()  # a fresh piece is aligned for every dtype
        tensor.copy_(part.view(tensor.dtype).view(tensor.shape) if size else tensor)
        start += size


def digest(joined: Tensor) -> str:
    """SHA-256 of the bytes, as hex."""
    return hashlib.sha256(joined.cpu().numpy().data).hexdigest()
