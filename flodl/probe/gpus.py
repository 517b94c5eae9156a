"""How many GPUs this machine lends, asked from NVML: the driver answers without a CUDA context."""

from __future__ import annotations

import os

__all__ = ["count_gpus"]


def count_gpus() -> int:
    """GPUs that a run may use here: those in CUDA_VISIBLE_DEVICES where it is set, else all. 0 without a driver."""
    lent = os.environ.get("CUDA_VISIBLE_DEVICES")
    if lent is not None:
        return min(len([name for name in lent.split(",") if name.strip() not in ("", "-1")]), _installed())
    return _installed()


def _installed() -> int:
    try:
        import pynvml
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0  # no driver, or no library of it
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
