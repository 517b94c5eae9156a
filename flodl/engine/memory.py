"""Running out of memory: how it shows, and how much there was."""

from __future__ import annotations

import re
from pathlib import Path

import torch

__all__ = ["is_out_of_memory", "memory_words"]

GIB = 1 << 30
SIGNS = ("DefaultCPUAllocator: can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether less memory would have done. torch tells some of its failures as plain RuntimeErrors."""
    if type(error) is RuntimeError:
        return any(sign in str(error) for sign in SIGNS)
    return isinstance(error, MemoryError | torch.OutOfMemoryError)


def memory_words(device: torch.device, trouble: str) -> str:
    """Which device this is, what was asked of it and what is free, in words."""
    asked = re.search(r"(?:allocate|allocating) ([\d.]+ ?[KMGT]?i?B)|you tried to allocate (\d+) bytes", trouble)
    need = f"needs {asked[1] or f'{int(asked[2]) / GIB:.2f} GiB'} more" if asked else trouble.splitlines()[0][:200]
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used = torch.cuda.memory_allocated(device)
        card = f"{torch.cuda.get_device_name(device)} ({total / GIB:.1f} GiB, {used / GIB:.1f} GiB in use by this rank)"
        return f"{card}: {need}, {free / GIB:.2f} GiB are free"
    return f"CPU: {need}, {_available_bytes() / GIB:.2f} GiB are free"


def _available_bytes() -> int:
    """Main memory that could be had without swapping, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
