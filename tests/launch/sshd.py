"""A private sshd on the loopback interface: own host key, own authorized keys, own folder; ended by its fixture."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from flodl.ports import HostCall
from flodl.spec.cluster import HostSpec, SshSpec

__all__ = ["SSHD", "Sshd", "why_not"]

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin") or ""
USER = pwd.getpwuid(os.getuid()).pw_name


def why_not() -> str:
    """Why there can be no sshd here; "" where there can."""
    if not SSHD or shutil.which("ssh-keygen") is None:
        return "no sshd or ssh-keygen (Debian: openssh-server)"
    return "" if os.getuid() == 0 else "sshd needs root for its privilege separation"


def keygen(file: Path, passphrase: str = "") -> Path:
    """A fresh key pair."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(file)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=30)
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Sshd:
    """One server. shell: what stands in place of the login shell's start-up files, run before the command."""

    folder: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.host_key = keygen(self.folder / "host_key")
        self.identity = keygen(self.folder / "id of a user")
        self.known_hosts = self.folder / "known hosts"
        self.authorized = self.folder / "authorized_keys"
        self.authorized.write_text(Path(f"{self.identity}.pub").read_text())
        self.know()

    def know(self) -> None:
        """The host key is known from now on."""
        kind, key, *_ = Path(f"{self.host_key}.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self) -> Sshd:
        Path("/run/sshd").mkdir(exist_ok=True)  # its privilege separation wants it
        config = self.folder / "sshd_config"
        lines = [
            "ListenAddress 127.0.0.1", f"Port {self.port}", f"HostKey {self.host_key}", "PidFile none",
            f'AuthorizedKeysFile "{self.authorized}"', "StrictModes no", "UsePAM no", "PasswordAuthentication no",
            "KbdInteractiveAuthentication no", "PermitRootLogin yes", "LogLevel VERBOSE", *self.options,
        ]  # fmt: skip
        config.write_text("\n".join(lines) + "\n")
        log = self.folder / "sshd.log"
        self.process = subprocess.Popen([SSHD, "-D", "-E", str(log), "-f", str(config)], stdin=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            assert self.process.poll() is None, log.read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        raise AssertionError("sshd does not listen")

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None

    def before_commands(self, script: str) -> None:
        """What the login shell does before it comes to a command, as a ~/.bashrc would."""
        file = self.folder / "forced"
        file.write_text(f'#!/bin/bash\n{script}\neval "$SSH_ORIGINAL_COMMAND"\n')
        file.chmod(0o755)
        key = Path(f"{self.identity}.pub").read_text()
        self.authorized.write_text(f'command="{file}" {key}')

    def call(self, *, python: str = "", path: str = "", docker: str | None = None, **ssh: object) -> HostCall:
        """A call to this server."""
        given: dict[str, object] = {
            "target": "127.0.0.1", "port": self.port, "user": USER, "identity_file": str(self.identity),
            "known_hosts": str(self.known_hosts),
        }  # fmt: skip
        spec = HostSpec(host="node-a", docker=docker, ssh=SshSpec(**(given | ssh)))  # type: ignore[arg-type]
        return HostCall(spec=spec, python=python, path=path)
