"""Randomness of a batch is a function of (seed, epoch, first position) alone.

So no generator's state is ever stored, and a batch is the same on whichever rank it runs, after deaths and resumes.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch

__all__ = ["batch_seed", "seed_batch"]


def batch_seed(seed: int, epoch: int, position: int) -> int:
    """63 bits that differ for every (seed, epoch, position), the same on every host and version."""
    named = hashlib.blake2b(f"{seed}/{epoch}/{position}".encode(), digest_size=8)
    return int.from_bytes(named.digest(), "big") >> 1


def seed_batch(seed: int, epoch: int, position: int, device: torch.device) -> None:
    """Seed torch, numpy and python before a batch; on CUDA the device's generator in place of the CPU's.

    torch.manual_seed would also look for every other kind of device: 80 microseconds instead of one.
    """
    value = batch_seed(seed, epoch, position)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(value)
    else:
        torch.default_generator.manual_seed(value)
    np.random.seed(value >> 31)  # the other half: both are the same generator, and would draw the same numbers
    random.seed(value)
