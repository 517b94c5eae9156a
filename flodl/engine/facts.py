"""What a host says about itself: cheap facts at once, the facts about torch when its warm process has loaded it.

Nothing here touches CUDA in this process: torch refuses the GPU to ranks that are forked from one that has, and it
counts a mere look at the build's architectures as touching.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

__all__ = ["host_facts", "num_cores", "torch_facts"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def num_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_facts() -> dict[str, str | int]:
    """Operating system, interpreter, cores, memory in bytes, flodl's version.

    machine: the same text for hosts that are one machine under several names: they share its cores.
    """
    return {
        "os": platform.platform(),
        "hostname": platform.node(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cores": num_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "flodl": _version("flodl"),
        "machine": _machine(),
    }


def torch_facts() -> dict[str, str]:
    """Versions of torch, CUDA and NCCL ("" where there is none) and the GPU architectures of this build."""
    import torch
    import torch.cuda.nccl

    cuda = torch.version.cuda or ""
    return {
        "torch": torch.__version__,
        "cuda": cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else "",
        "archs": _in_a_child(_architectures) if cuda else "",
    }


def _machine() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return platform.node()


def _architectures() -> str:
    """GPU architectures of this torch build, as "sm_61 sm_70 compute_90"."""
    import torch

    return torch._C._cuda_getArchFlags() or ""


def _in_a_child(ask: Callable[[], str]) -> str:
    """What `ask` answers in a forked process of its own; "" where that fails. Only for a single-threaded process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, ask().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode(errors="replace")
    os.waitpid(child, 0)
    return text


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
