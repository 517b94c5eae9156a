"""trainer.deterministic: only algorithms that give the same bits every time. An operation without one raises."""

from __future__ import annotations

import os

import torch

__all__ = ["make_deterministic"]

CUBLAS_WORKSPACE = ":4096:8"


def make_deterministic() -> None:
    """For the whole process; before the GPU is first used, for cuBLAS reads its variable then."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
