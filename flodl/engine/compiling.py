"""torch.compile, in place: the model stays the same object, and its state_dict keeps the user's own keys."""

from __future__ import annotations

import os
import shutil
from typing import Literal

import torch
from torch import nn

__all__ = ["compile_model"]

COMPILED_CAPABILITY = (7, 0)  # Triton's lowest


def compile_model(model: nn.Module, asked: Literal["auto"] | bool, device: torch.device) -> bool:
    """Compile what a call of the model computes; returns whether. Nothing happens before the first batch.

    auto: on a GPU of capability 7.0 and up whose host can compile (Triton and a C compiler are there), and what cannot
    be compiled runs as it is. true: whatever fails is an error.
    """
    wanted = _can_compile(device) if asked == "auto" else asked
    if wanted:
        # dynamo runs what it cannot compile as it is, and says so
        torch._dynamo.config.suppress_errors = asked == "auto"  # pyright: ignore[reportAttributeAccessIssue]
        model.compile()
    return wanted


def _can_compile(device: torch.device) -> bool:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < COMPILED_CAPABILITY:
        return False
    from torch.utils._triton import has_triton  # late: it looks for the driver

    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    return bool(has_triton()) and any(shutil.which(name) for name in compilers if name)
