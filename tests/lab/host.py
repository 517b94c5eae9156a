"""One host of a lab: namespaces of its own, a hostname, private folders, an interpreter, and a real sshd."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab.first_process import under
from tests.lab.shell import CLEAN, LabError, Process, run

__all__ = ["PRIVATE", "PYTHON", "Host"]

REPOSITORY = Path(__file__).resolve().parents[2]
PRIVATE = ("/srv", "/root", "/run", "/dev/shm", "/var/tmp", "/tmp")  # empty, and the host's own
PYTHON = "/srv/env/bin/python"  # a virtual environment of the host's own over the software of this one
SSHD = "/usr/sbin/sshd"
DEFAULT_MAX_STARTUPS = "10:30:100"
READY_SECONDS = 10.0

SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey /run/sshd/host_key
AuthorizedKeysFile .ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile /run/sshd/pid
MaxStartups {max_startups}
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""


def kept_paths() -> list[str]:
    """Software that a host shares with this machine although it lies in a folder that hosts have for themselves."""
    software = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
    inner = [str(p) for p in software if any(under(str(p), private) for private in PRIVATE)]
    if outer := [p for p in inner if p in PRIVATE]:
        raise LabError(f"{outer[0]} holds the software itself, and lab hosts have an empty folder there")
    return sorted(p for p in inner if not any(p != other and under(p, other) for other in inner))


class Host:
    """A host by name. `start` powers it on, `kill` is a power cut; its keys and its address stay."""

    def __init__(self, name: str, index: int, address: str, folder: Path) -> None:
        self.name = name
        self.index = index
        self.address = address
        self.folder = folder
        self._holder: subprocess.Popen[bytes] | None = None
        self._first: Process | None = None

    # ------------------------------------------------------------------------------------------------ power

    def boot(self, *, kept: bool) -> None:
        """Namespaces and private folders; no cable yet. Returns before they are made: see `await_boot`."""
        order = {
            "name": self.name,
            "folder": str(self.folder),
            "kept": kept_paths(),
            "outlives_its_maker": kept,
        }
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        first = [sys.executable, "-S", "-E", str(Path(__file__).with_name("first_process.py")), json.dumps(order)]
        with self._boot_log.open("wb") as log:
            self._holder = subprocess.Popen(
                ["unshare", *spaces, *first],
                stdin=subprocess.DEVNULL if kept else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=CLEAN,
                cwd="/",
                start_new_session=True,
            )

    @property
    def _boot_log(self) -> Path:
        return self.folder / "boot.log"

    def await_boot(self) -> None:
        assert self._holder is not None
        assert self._holder.stdout is not None
        with self._holder.stdout as told:
            if told.readline() != b"ready\n":
                raise LabError(f"{self.name} did not start: {self._boot_log.read_text().strip()}")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self._first = Process.of(int(children[0]))

    def furnish(self, authorized_key: str) -> None:
        """Keys, shell and interpreter of the host."""
        self.write("/root/.ssh/authorized_keys", authorized_key, mode=0o600)
        self.write("/root/.bashrc", "")
        self.write("/run/sshd/host_key", (self.folder / "host_key").read_text(), mode=0o600)
        self.make_environment(PYTHON.removesuffix("/bin/python"))
        for place in ("/srv/project", "/srv/data"):
            self.path(place).mkdir(exist_ok=True)

    def make_environment(self, place: str) -> None:
        """A virtual environment on this host that holds what the environment of this program holds."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        real = Path(sys.executable).resolve()
        self.write(f"{place}/pyvenv.cfg", f"home = {real.parent}\nversion = {sys.version.split()[0]}\n")
        shared = [str(REPOSITORY), str(REPOSITORY / "launch"), *site.getsitepackages()]
        lines = [f"import site; site.addsitedir({folder!r})" for folder in shared]
        self.write(f"{place}/lib/{version}/site-packages/lab.pth", "\n".join(lines) + "\n")
        self.path(f"{place}/bin").mkdir()
        self.path(f"{place}/bin/python").symlink_to(real)

    @property
    def first(self) -> Process:
        """Process 1 of the host, as this machine numbers it."""
        if self._first is None or not self._first.lives:
            raise LabError(f"{self.name} has no power")
        return self._first

    @property
    def powered(self) -> bool:
        return self._first is not None and self._first.lives

    def kill(self) -> None:
        """End every process of the host at once. Its sockets say goodbye unless its cable was pulled before."""
        if self._first is not None:
            self._first.kill()
        if self._holder is not None:
            if self._holder.stdin:
                self._holder.stdin.close()
            self._holder.wait(READY_SECONDS)
        self._holder = self._first = None

    # ----------------------------------------------------------------------------------------------- shells

    def command(self, argv: Sequence[str], folder: str = "/root") -> list[str]:
        """What this machine runs to have argv run on the host, without SSH."""
        settings = [f"{name}={value}" for name, value in CLEAN.items()]
        return ["nsenter", "--target", str(self.first.pid), "--mount", "--uts", "--ipc", "--net", "--pid",
                "env", "--ignore-environment", f"--chdir={folder}", *settings, *argv]  # fmt: skip

    def exec(
        self, argv: Sequence[str], *, given: str = "", check: bool = True, timeout: float = 30, folder: str = "/root"
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the host to its end."""
        done = subprocess.run(
            self.command(argv, folder), input=given, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise LabError(f"{self.name}: {' '.join(argv)}: exit {done.returncode}: {done.stderr or done.stdout}")
        return done

    def popen(self, argv: Sequence[str], folder: str = "/root", **options: Any) -> subprocess.Popen[str]:
        """Start a program on the host; its streams are pipes of text unless options say otherwise."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(self.command(argv, folder), **{**streams, "text": True, **options})

    def processes(self) -> dict[int, str]:
        """pid on this machine -> command line, of all that runs on the host but process 1 and the listening sshd."""
        if not self.powered:
            return {}
        namespace = Path(f"/proc/{self.first.pid}/ns/pid").readlink()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or (entry / "ns/pid").readlink() != namespace:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if command and int(entry.name) != self.first.pid and "[listener]" not in command:
                found[int(entry.name)] = command
        return found

    def end_processes(self) -> None:
        """KILL what `processes` lists; all of it was started on the lab's own host."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------------------------------------ files

    def path(self, path: str) -> Path:
        """A path of the host, as this machine reaches it."""
        return Path(f"/proc/{self.first.pid}/root") / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def read(self, path: str) -> str:
        return self.path(path).read_text(errors="replace")

    def empty(self) -> None:
        """Remove what tests wrote to the host's private folders."""
        disks = [private for private in PRIVATE if private != "/run"]
        what = ["-xdev", "-mindepth", "1", "-depth", "(", "-not", "-type", "d", "-o", "-empty", ")", "-delete"]
        self.exec(["find", *disks, *what])  # software that shows through lies on another device: it stays

    # ------------------------------------------------------------------------------------------------- sshd

    def listen(self, max_startups: str = DEFAULT_MAX_STARTUPS) -> None:
        """(Re)start the listening sshd; sessions that are open stay. Its pid file says that it listens."""
        pid_file = self.path("/run/sshd/pid")
        if pid_file.exists():
            self.end_sshd()
            _wait(lambda: not pid_file.exists(), f"{self.name}: the old sshd does not end")
        self.write("/run/sshd/config", SSHD_CONFIG.format(address=self.address, max_startups=max_startups))
        self.exec([SSHD, "-f", "/run/sshd/config", "-E", "/run/sshd/log"])
        _wait(pid_file.exists, f"{self.name}: sshd does not listen; its log:\n{self.read('/run/sshd/log')}")

    def end_sshd(self) -> None:
        """Nobody listens any more; sessions that are open stay."""
        self.exec(["sh", "-c", "kill $(cat /run/sshd/pid)"])

    def sshd_log(self) -> str:
        """What the host's sshd has written since power-on: logins, refused keys, dropped connections."""
        return self.read("/run/sshd/log")

    def make_key(self) -> str:
        """A new key of the host itself; the line that names it in known_hosts."""
        key = self.folder / "host_key"
        key.unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)
        return self.known_hosts_line()

    def known_hosts_line(self) -> str:
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        return f"{self.name},{self.address} {kind} {key}"


def _wait(true: Any, failure: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise LabError(failure)
        time.sleep(0.005)
