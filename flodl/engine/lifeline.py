"""Nobody outlives whoever started it: the kernel ends a process whose parent dies.

The death signal belongs to the *thread* that forked, so agents fork from their main thread and warm processes too.
"""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["die_with_parent", "start_time"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Be killed when `parent` (the process that forked this one) dies; end at once where it is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; with its number it names a process for good. 0: gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            return int(stat.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
