"""Host keys: which files are read, and what happens to a key that is in none of them.

fabric alone accepts any key silently. Here the known ones are loaded and a policy that refuses is set before a
connection is opened, on jump hosts too. Files are read as OpenSSH reads them: paramiko takes a line of patterns for a
host of that name, and passes over keys that were revoked. (It cannot check certificates: @cert-authority is left out.)
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import paramiko
from paramiko.config import SSH_PORT
from paramiko.hostkeys import HostKeyEntry

__all__ = ["AcceptNew", "KnownKey", "Reject", "RevokedKeyError", "UnknownKeyError", "fingerprint", "known_hosts_files",
           "known_keys", "let_in", "server_name"]  # fmt: skip

SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")


class UnknownKeyError(paramiko.SSHException):
    """No file of known hosts names this server."""

    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(f"the host key of {name} is not known")
        self.key = key


class RevokedKeyError(paramiko.SSHException):
    """A file of known hosts says that this key is not to be trusted any more."""

    def __init__(self, entry: KnownKey) -> None:
        super().__init__(f"the host key was revoked in {entry.place}")
        self.entry = entry


@dataclass(frozen=True)
class KnownKey:
    """A line's key. is_named: the line names the server itself, not a pattern."""

    key: paramiko.PKey
    file: Path
    line: int
    is_revoked: bool
    is_named: bool

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"line {self.line} of {self.file}"


class Reject(paramiko.RejectPolicy):
    """Refuse, with the key in the error: a person has to compare its fingerprint. revoked: of this server."""

    def __init__(self, revoked: Sequence[KnownKey] = ()) -> None:
        self.revoked = revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        _refuse_revoked(self.revoked, key)
        raise UnknownKeyError(hostname, key)


class AcceptNew(paramiko.MissingHostKeyPolicy):
    """Write a key that was never seen to the file and go on; a changed one is refused all the same."""

    def __init__(self, file: Path, revoked: Sequence[KnownKey] = ()) -> None:
        self._file = file
        self.revoked = revoked
        self.news = ""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        _refuse_revoked(self.revoked, key)
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


def server_name(host: str, port: int) -> str:
    """What a server is called in files of known hosts."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def known_keys(files: Iterable[Path], host: str, port: int) -> list[KnownKey]:
    """What the files say of a server, in their order; of one on another port what they say of its host, where that is
    all there is. Raises InvalidHostKey for a line of it that holds no key, OSError."""
    lines = [line for file in files if file.is_file() for line in _lines(file)]
    for name in dict.fromkeys((server_name(host, port), host)):
        if found := [key for file, number, line in lines if (key := _key_of(file, number, line, name)) is not None]:
            return found
    return []


def let_in(client: paramiko.SSHClient, host: str, port: int, keys: Sequence[KnownKey]) -> None:
    """Have the client take the keys that were not revoked, of each kind the first one."""
    revoked = [entry.key for entry in keys if entry.is_revoked]
    kinds: set[str] = set()
    for entry in keys:
        kind = entry.key.get_name()
        if entry.key not in revoked and kind not in kinds:
            kinds.add(kind)
            client.get_host_keys().add(server_name(host, port), kind, entry.key)


def _lines(file: Path) -> Iterator[tuple[Path, int, str]]:
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield file, number, line.strip()


def _key_of(file: Path, number: int, line: str, name: str) -> KnownKey | None:
    """The line's key where it speaks of `name`."""
    marker, rest = line.split(maxsplit=1) if line.startswith("@") and " " in line else ("", line)
    fields = rest.split()
    if marker not in ("", "@revoked") or len(fields) < 3 or not _means(fields[0], name):
        return None
    entry = HostKeyEntry.from_line(" ".join([name, *fields[1:3]]), number)
    if entry is None or entry.key is None:
        return None  # of a kind that paramiko does not know
    is_named = name in fields[0].split(",") or fields[0].startswith("|")
    return KnownKey(entry.key, file, number, is_revoked=bool(marker), is_named=is_named)


def _means(patterns: str, name: str) -> bool:
    """Whether a line's first field (names with * and ?, ! for all but these; or one hash) means a server."""
    if patterns.startswith("|"):
        try:
            return paramiko.HostKeys.hash_host(name, patterns) == patterns
        except (AssertionError, IndexError, ValueError):
            return False  # no hash of any name
    wanted = False
    for pattern in patterns.split(","):
        plain = pattern.removeprefix("!")
        if _expression(plain).fullmatch(name):
            if plain != pattern:
                return False
            wanted = True
    return wanted


def _expression(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.IGNORECASE)


def _refuse_revoked(revoked: Iterable[KnownKey], key: paramiko.PKey) -> None:
    for entry in revoked:
        if entry.key == key:
            raise RevokedKeyError(entry)


def fingerprint(key: paramiko.PKey) -> str:
    """As ssh-keygen -l shows it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"
