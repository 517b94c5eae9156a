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
    """A line's key. is_named: the line names the server itself, not a pattern. is_portless: it speaks of the host on
    the usual port, not of this server: its key is good here too, another one is a new one."""

    key: paramiko.PKey
    file: Path
    line: int
    is_revoked: bool
    is_named: bool
    is_portless: bool

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"line {self.line} of {self.file}"


class _Known:
    """What to think of a key that paramiko itself finds no word about. keys: all that the files say of the server."""

    def __init__(self, keys: Sequence[KnownKey] = ()) -> None:
        self.keys = keys

    def knows(self, name: str, key: paramiko.PKey) -> bool:
        """Whether it may be trusted. Raises RevokedKeyError, BadHostKeyException where there are only others."""
        if (entry := self.revoked(key)) is not None:
            raise RevokedKeyError(entry)
        good = [entry for entry in self.keys if not entry.is_revoked]
        if any(entry.key == key for entry in good):
            return True
        own = [entry for entry in good if not entry.is_portless]
        if own:
            raise paramiko.BadHostKeyException(name, key, own[0].key)
        return False

    def revoked(self, key: paramiko.PKey) -> KnownKey | None:
        """The line that revokes it."""
        return next((entry for entry in self.keys if entry.is_revoked and entry.key == key), None)


class Reject(_Known, paramiko.MissingHostKeyPolicy):
    """Refuse, with the key in the error: a person has to compare its fingerprint."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if not self.knows(hostname, key):
            raise UnknownKeyError(hostname, key)


class AcceptNew(_Known, paramiko.MissingHostKeyPolicy):
    """Write a key that was never seen to the file and go on; a changed one is refused all the same."""

    def __init__(self, file: Path, keys: Sequence[KnownKey] = ()) -> None:
        super().__init__(keys)
        self._file = file
        self.news = ""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        if self.knows(hostname, key):
            return
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
    """What the files say of a server, in their order, and of its host without a port.

    Raises InvalidHostKey for a line of it that holds no key, OSError.
    """
    lines = [line for file in files if file.is_file() for line in _lines(file)]
    names = dict.fromkeys((server_name(host, port), host))
    found = [_key_of(line, name, is_portless=name != server_name(host, port)) for name in names for line in lines]
    return [entry for entry in found if entry is not None]


def let_in(client: paramiko.SSHClient, host: str, port: int, keys: Sequence[KnownKey]) -> None:
    """Tell the client what the server's key has to be, so that it asks for one of that kind.

    It holds one key of a kind: where there are several, the policy decides.
    """
    good = [entry.key for entry in keys if not entry.is_revoked and not entry.is_portless]
    good = [key for key in dict.fromkeys(good) if all(key != entry.key for entry in keys if entry.is_revoked)]
    if len({key.get_name() for key in good}) == len(good):
        for key in good:
            client.get_host_keys().add(server_name(host, port), key.get_name(), key)


def _lines(file: Path) -> Iterator[tuple[Path, int, list[str]]]:
    """The fields of each line. Only what ends a line or a field to OpenSSH does here, or a comment could hide a key."""
    for number, line in enumerate(file.read_bytes().decode(errors="replace").split("\n"), start=1):
        fields = [field for field in re.split("[ \t]+", line.rstrip("\r")) if field]
        if fields and not fields[0].startswith("#"):
            yield file, number, fields


def _key_of(line: tuple[Path, int, list[str]], name: str, *, is_portless: bool) -> KnownKey | None:
    """The line's key where it speaks of `name`."""
    file, number, fields = line
    marker, *rest = fields if fields[0].startswith("@") else ["", *fields]
    if marker not in ("", "@revoked") or len(rest) < 3 or not _means(rest[0], name):
        return None
    entry = HostKeyEntry.from_line(" ".join([name, *rest[1:3]]), number)
    if entry is None or entry.key is None:
        return None  # of a kind that paramiko does not know
    is_named = rest[0].startswith("|") or name.lower() in rest[0].lower().split(",")
    return KnownKey(entry.key, file, number, bool(marker), is_named, is_portless)


def _means(patterns: str, name: str) -> bool:
    """Whether a line's first field (names with * and ?, ! for all but these; or one hash) means a server."""
    if patterns.startswith("|"):
        try:
            return paramiko.HostKeys.hash_host(name.lower(), patterns) == patterns
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


def fingerprint(key: paramiko.PKey) -> str:
    """As ssh-keygen -l shows it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"
