"""Host keys: which files are read, and what happens to a key that is in none of them.

fabric alone accepts any key silently. Here the known ones are loaded and a policy that refuses is set before a
connection is opened, on jump hosts too.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import paramiko

__all__ = ["AcceptNew", "Reject", "UnknownKeyError", "fingerprint", "known_hosts_files"]

SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


class UnknownKeyError(paramiko.SSHException):
    """No file of known hosts names this server."""

    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(f"the host key of {name} is not known")
        self.key = key


class Reject(paramiko.RejectPolicy):
    """Refuse, with the key in the error: a person has to compare its fingerprint."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        raise UnknownKeyError(hostname, key)


class AcceptNew(paramiko.MissingHostKeyPolicy):
    """Write a key that was never seen to the file and go on; a changed one is refused all the same."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.news = ""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        line = f"{hostname} {key.get_name()} {key.get_base64()}\n".encode()
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One appending write: several hosts get in at once, and other programs write here as well.
        target = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(target).st_size
            torn = size > 0 and os.pread(target, 1, size - 1) != b"\n"
            os.write(target, (b"\n" if torn else b"") + line)
        finally:
            os.close(target)
        self.news = f"accepted the new host key of {hostname}, {fingerprint(key)}, into {self._file}"


def known_hosts_files(given: str | None, ssh_config: Sequence[str] = ()) -> tuple[Path, ...]:
    """The files to read, the one that new keys go to first. given: the cluster file's, and then no other counts."""
    if given is not None:
        return (Path(given).expanduser(),)
    user = ssh_config or USER_FILES
    return tuple(Path(name).expanduser() for name in (*user, *SYSTEM_FILES))


def fingerprint(key: paramiko.PKey) -> str:
    """As ssh-keygen -l shows it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"
