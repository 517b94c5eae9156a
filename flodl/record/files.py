"""Writing so that a kill, a full disk or a crash leaves either the old file or the whole new one.

Two ways and no third: `AtomicFile` writes beside its target and moves the whole file into place; `LineFile` appends
whole lines, of which at most the last can be torn, and `whole_lines` reads past that one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from io import BufferedIOBase, BufferedWriter
from pathlib import Path
from types import TracebackType
from typing import Self

from flodl.errors import FlodlError

__all__ = [
    "AtomicFile",
    "LineFile",
    "refusal",
    "sweep_beside",
    "sync_folder",
    "target_of",
    "whole_lines",
    "write_atomically",
]

_BESIDE = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")
_TRIES = 8  # a sweeper gets between a file's creation and its lock once in a while, not this often


class AtomicFile:
    """A file that appears whole or not at all: temporary name, fsync, rename, fsync of the folder.

    As a context manager it commits at a clean exit and leaves nothing behind after an exception. OSError (a full
    disk, no rights) passes through; the previous file of that name is untouched then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside, self._file = _opened_beside(path)
        self._is_placed = False

    def write(self, data: bytes | memoryview) -> None:
        """Append to the file under its temporary name."""
        self._file.write(data)

    def commit(self) -> None:
        """Make it durable and move it into place."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._beside.replace(self.path)
        self._is_placed = True
        self._file.close()
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Forget it; nothing stays, also where the disk is full. Harmless after a commit."""
        if not self._is_placed:
            self._beside.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # closing writes what is buffered, which a full disk refuses again
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.abandon()


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whole or not at all."""
    with AtomicFile(path) as file:
        file.write(data)


def sweep_beside(path: Path) -> None:
    """Remove what writers of `path` that were killed left under temporary names; those of living ones are locked."""
    for beside in path.parent.glob(".*.tmp"):
        if target_of(beside.name) != path.name:
            continue
        with contextlib.suppress(OSError), beside.open("r+b") as file:  # NFS locks only what can be written
            _lock(file)
            beside.unlink()


def _opened_beside(path: Path) -> tuple[Path, BufferedWriter]:
    """A new file under a temporary name, locked as long as it is open (also a kill ends that)."""
    for _ in range(_TRIES):
        beside, file = _created_beside(path)
        if _is_ours(beside, file):
            return beside, file
        file.close()
        beside.unlink(missing_ok=True)
    return _created_beside(path)  # locks mean nothing here


def _created_beside(path: Path) -> tuple[Path, BufferedWriter]:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    return beside, beside.open("xb")


def _is_ours(beside: Path, file: BufferedIOBase) -> bool:
    """Whether no sweeper took a file that was just created for a dead writer's, and none will from now on."""
    try:
        _lock(file)
    except BlockingIOError:
        return False  # one holds it, and is about to remove it
    except OSError:
        return True  # a file system without locks: nobody sweeps there
    return beside.exists()


def _lock(file: BufferedIOBase) -> None:
    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def target_of(name: str) -> str:
    """The file that was being written under this temporary name; "" for every other name."""
    found = _BESIDE.fullmatch(name)
    return "" if found is None else found[1]


class LineFile:
    """An append-only file of whole lines. Nothing is buffered, so a kill tears at most the last one.

    A file that ends in a torn line (an earlier process was killed) is cut back to its last whole line first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._drop_torn_line()

    def append(self, line: bytes) -> None:
        """Write one line; `line` holds no newline. A line that does not fit on the disk is taken back whole."""
        start = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(start)
            raise

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _drop_torn_line(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their newlines; a last one without its newline is torn and left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def refusal(error: OSError, path: Path, what: str) -> FlodlError:
    """A refusal of the file system in words: which file, what it said, its name for that, and what it means."""
    name = f" ({errno.errorcode.get(error.errno, error.errno)})" if error.errno is not None else ""
    return FlodlError(f"{path}: {error.strerror or error}{name}: {what}")


def sync_folder(folder: Path) -> None:
    """Make a rename durable: the name lies in the folder, not in the file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
