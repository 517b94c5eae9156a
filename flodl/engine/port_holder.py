"""Who holds a TCP port of this machine, as far as /proc tells: for the message about a busy port."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["holder_of"]

LISTEN = "0A"


def holder_of(port: int) -> str:
    """ "process 4711 (python train.py)", or "another process" where it cannot be seen."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(_target(link) in inodes for link in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {process.name} ({words[:80]})"
    return "another process"


def _listening_inodes(port: int) -> frozenset[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return frozenset(found)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
