"""The name of a process that no other process will ever have: a number alone is given away again.

It holds for one boot of one machine and one namespace of processes: elsewhere the same number is somebody else.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import msgspec

__all__ = ["ProcessName", "here", "is_known_here", "lives", "send", "this_process"]


class ProcessName(msgspec.Struct, frozen=True, kw_only=True):
    """host: for people. boot, namespace: where `pid` and `start_ticks` (clock ticks since that boot) mean anything."""

    pid: int
    start_ticks: int
    host: str = ""
    boot: str = ""
    namespace: str = ""


def this_process() -> ProcessName:
    """The name of the caller's own process."""
    host, boot, namespace = here()
    pid = os.getpid()
    return ProcessName(pid=pid, start_ticks=_start_ticks(pid), host=host, boot=boot, namespace=namespace)


def here() -> tuple[str, str, str]:
    """(host, boot, namespace) of this process."""
    return socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), _link("/proc/self/ns/pid")


def is_known_here(name: ProcessName) -> bool:
    """True where this machine, since its last start, is the one that gave the process its number."""
    return (name.boot, name.namespace) == here()[1:]


def lives(name: ProcessName) -> bool:
    """True where exactly that process runs here now; a zombie does not run."""
    return is_known_here(name) and _is(name)


def send(name: ProcessName, number: signal.Signals) -> bool:
    """Send a signal to exactly that process; False where it is gone. PermissionError where it is another user's."""
    if not is_known_here(name):
        return False
    try:
        handle = os.pidfd_open(name.pid)
    except ProcessLookupError:
        return False
    try:
        if not _is(name):  # checked after the handle was taken: the handle stays with the process that was looked at
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _is(name: ProcessName) -> bool:
    return name.start_ticks > 0 and _start_ticks(name.pid) == name.start_ticks


def _start_ticks(pid: int) -> int:
    """Field 22 of its stat; 0 for a process that is gone, or a zombie."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return 0
    return int(fields[19])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
