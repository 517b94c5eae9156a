"""Common start: bytes of every kind of tensor, and one hash."""

from __future__ import annotations

import torch
from torch import nn

from flodl.engine.averaging.start import digest, from_bytes, start_tensors, to_bytes


def tensors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(2, 3, 4, 4, generator=generator)
    return [
        torch.randint(0, 2, (5,), generator=generator).bool(),
        image.contiguous(memory_format=torch.channels_last) if seed else image,
        torch.randn(3, generator=generator).to(torch.bfloat16),
        torch.tensor(seed),
        torch.empty(0),
        torch.randn(3, dtype=torch.complex64, generator=generator),
        torch.randn(6, 4, dtype=torch.float64, generator=generator)[:, ::2] if seed else torch.randn(6, 2).double(),
    ]


def test_bytes_carry_every_dtype_and_layout_exactly() -> None:
    source, target = tensors(0), tensors(1)
    from_bytes(to_bytes(source), target)
    for mine, theirs in zip(source, target, strict=True):
        assert torch.equal(mine, theirs)
    assert digest(to_bytes(source)) == digest(to_bytes(target))
    assert digest(to_bytes(source)) != digest(to_bytes(tensors(2)))


def test_frozen_parameters_and_integer_buffers_are_part_of_the_start() -> None:
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.BatchNorm1d(2))
    assert len(start_tensors(model)) == 7
