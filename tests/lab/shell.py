"""Running the system's own tools, and knowing a process again: the lab's only way to touch this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["CLEAN", "LabError", "Process", "reason_for_no_lab", "run"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a login shell of a host would start with; nothing of the caller's environment leaks into a host.
CLEAN = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C.UTF-8", "PATH": PATH}

TOOLS = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "iptables": "iptables",
    "rsync": "rsync",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}


class LabError(Exception):
    """The lab could not do what it was asked; the message is the tool's own."""


class Process(NamedTuple):
    """A process that is the same only if its start time is: numbers are given out again."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in {"Z", "X"} else cls(pid, int(fields[18]))

    @property
    def lives(self) -> bool:
        return Process.of(self.pid) == self

    def kill(self) -> None:
        if self.lives:
            os.kill(self.pid, signal.SIGKILL)


def run(*command: str | Path, check: bool = True, given: str = "", timeout: float = 20) -> str:
    """Standard output of a tool; LabError with its own words where it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        input=given, capture_output=True, text=True, timeout=timeout, env=CLEAN, check=False,
    )  # fmt: skip
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(map(str, command))}: exit {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _missing_tools() -> Sequence[str]:
    return [f"{tool} ({package})" for tool, package in TOOLS.items() if shutil.which(tool, path=PATH) is None]


def reason_for_no_lab() -> str | None:
    """Why this machine cannot hold a lab; None where it can."""
    if not Path("/proc/self/ns/net").exists():
        return "the lab needs Linux namespaces"
    if os.geteuid() != 0:
        return "the lab needs root (network namespaces, sshd)"
    if missing := _missing_tools():
        return f"the lab needs {', '.join(missing)}: apt-get install openssh-server iproute2 iptables rsync"
    try:
        run("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "true")
        run("unshare", "--net", "ip", "link", "add", "flabtry", "type", "bridge")
    except LabError as error:
        return f"namespaces or bridges are not to be had here: {error}"
    return None
