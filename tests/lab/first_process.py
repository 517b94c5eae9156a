"""Process 1 of a lab host: makes the host's private folders and its name, then reaps orphans until its lab ends.

Runs as a plain script in fresh namespaces, without site-packages. Its death is a power cut: the kernel kills every
process of the host and drops all of its mounts. Nothing but the files under the lab's own folder outlives it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

DISK = "/srv"  # projects, data and interpreters of a host lie here
DISK_SIZE = "8g"  # a limit; memory is taken as it is used
SYSTEM_FILES = ("hosts", "hostname", "passwd", "shadow")  # in the host's folder; they cover those of /etc


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def make_private(point: str, stage: Path, kept: list[str], size: str = DISK_SIZE) -> None:
    """Cover a folder with an empty one of our own, through which what is kept (software) shows where it was."""
    mount("-t", "tmpfs", "-o", f"size={size},mode={'1777' if point != '/root' else '0700'}", "lab", str(stage))
    for path in (p for p in kept if under(p, point)):
        inside = stage / os.path.relpath(path, point)
        inside.mkdir(parents=True, exist_ok=True)
        mount("--rbind", path, str(inside))
    mount("--rbind", str(stage), point)
    if not under(str(stage), point):  # else it is covered, and out of reach, by now
        subprocess.run(["umount", "--lazy", str(stage)], check=True)


def see_own_network(stage: Path) -> None:
    """/sys/class/net as this host has it; control groups stay as they are."""
    groups = "/sys/fs/cgroup"
    if grouped := os.path.ismount(groups):
        mount("--rbind", groups, str(stage))
    mount("-t", "sysfs", "lab", "/sys")
    if grouped:
        mount("--rbind", str(stage), groups)
        subprocess.run(["umount", "--lazy", str(stage)], check=True)


def build(order: dict[str, object]) -> None:
    """The host as its lab ordered it. /tmp comes last: the lab's own folder may lie there."""
    folder = Path(str(order["folder"]))
    kept = [str(path) for path in order["kept"]]  # type: ignore[attr-defined]
    socket.sethostname(str(order["name"]))
    for name in SYSTEM_FILES:
        if (folder / name).exists():
            mount("--bind", str(folder / name), f"/etc/{name}")
    stage = folder / "stage"
    stage.mkdir(exist_ok=True)
    see_own_network(stage)
    for point in (DISK, "/root", "/run", "/dev/shm", "/var/tmp", "/tmp"):
        make_private(point, stage, kept)
    Path("/run/sshd").mkdir(mode=0o755)
    Path("/run/lock").mkdir(mode=0o1777)
    ip = shutil.which("ip") or "/usr/sbin/ip"
    subprocess.run([ip, "link", "set", "lo", "up"], check=True)


def reap(*_: object) -> None:
    """Collect every child that has ended: orphans of the whole host land here."""
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def main() -> None:
    """Build, say so, and stay. A lab of a program ends with it: its end of our standard input closes."""
    order = json.loads(sys.argv[1])
    build(order)
    os.chdir("/")
    signal.signal(signal.SIGCHLD, reap)
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if order["outlives_its_maker"]:
        while True:
            signal.pause()
    while os.read(0, 1):
        pass


if __name__ == "__main__":
    main()
