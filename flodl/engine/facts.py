"""What a host says about itself: cheap facts at once, the facts about torch when its warm process has loaded it.

Nothing here creates a CUDA context: a forked rank could not use the GPU after that.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

__all__ = ["host_facts", "num_cores", "torch_facts"]


def num_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_facts() -> dict[str, str | int]:
    """Operating system, interpreter, cores, memory in bytes, flodl's version."""
    return {
        "os": platform.platform(),
        "hostname": platform.node(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cores": num_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "flodl": _version("flodl"),
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
        "archs": (torch._C._cuda_getArchFlags() or "") if cuda else "",  # get_arch_list() would initialise CUDA
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
