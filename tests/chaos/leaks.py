"""What a run leaves behind: processes, sockets and other descriptors, threads, shared memory, temporary files.

Agents and warm processes stay where fleets are kept; the rest of a run must be gone with it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tests.engine.live import alive, children, cmdline

__all__ = ["Sweep"]

GRACE_SECONDS = 5.0
KEPT = (b"flodl.engine.agent", b"resource_tracker")


class Sweep:
    """Before a run: what there is. folder: the run's; tmp: where its processes put temporary files."""

    def __init__(self, folder: Path, tmp: Path) -> None:
        self._folder, self._tmp = folder, tmp
        self._seen: set[int] = set()
        self._threads = set(threading.enumerate())
        self._descriptors = _descriptors(os.getpid())

    def look(self) -> None:
        """While it runs: who belongs to it."""
        self._seen.update(children(os.getpid()))

    def assert_clean(self) -> None:
        """After it: nothing is left, a moment of grace given."""
        end = time.monotonic() + GRACE_SECONDS
        while left := self.left():
            assert time.monotonic() < end, f"left behind: {left}"
            time.sleep(0.02)

    def left(self) -> list[str]:
        """What of the run is still there, in words."""
        kept = _kept()
        found = [f"process {pid}: {cmdline(pid)!r}" for pid in sorted(self._seen - kept) if alive(pid)]
        found += [f"thread {one.name}" for one in threading.enumerate() if one not in self._threads and _is_a_runs(one)]
        more = _descriptors(os.getpid()) - self._descriptors - 3 * len(kept)  # pipes to agents that were met meanwhile
        found += [f"{more} descriptors"] if more > 0 else []
        ours = {str(pid) for pid in self._seen}
        shared = [path for path in Path("/dev/shm").iterdir() if ours & set(path.name.replace("-", "_").split("_"))]
        temporary = [path for path in self._folder.rglob("*") if _is_temporary(path)]
        return found + [str(path) for path in (*shared, *temporary, *self._tmp.iterdir())]


def _kept() -> set[int]:
    """Agents, and the warm process of each: what may stay."""
    found: set[int] = set()
    for pid in children(os.getpid()):
        if any(name in cmdline(pid) for name in KEPT):
            found |= {pid, *[child for child in children(pid) if _parent(child) == pid]}
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_a_runs(thread: threading.Thread) -> bool:
    """Readers of an agent's streams live as long as it does."""
    return thread.is_alive() and thread.name.startswith("flodl") and "agent" not in thread.name


def _descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _is_temporary(path: Path) -> bool:
    return path.is_file() and ".tmp" in path.name
