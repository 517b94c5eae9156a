"""What of a stem's bundles lies in a folder, and whether it is whole. Reads only.

Nothing is read before its size was looked at, nothing parsed before its digest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from flodl.errors import ConfigError, Problem
from flodl.record.bundle_meta import BundleMeta, Member, decode_meta
from flodl.record.bundle_names import BundleNames, Kind

__all__ = ["Bundle", "BundleFolder", "Unreadable"]

CHUNK = 1 << 20
META_BYTES = 256 << 20  # a larger meta file is none of ours


@dataclass(frozen=True)
class Bundle:
    """A bundle whose meta file can be read."""

    folder: Path
    meta_path: Path
    meta: BundleMeta

    @property
    def round(self) -> int:
        """The averaging round whose result it holds."""
        return self.meta.round

    def path(self, kind: Kind) -> Path | None:
        """The file of one member; None where the bundle has none of that kind."""
        return next((self.folder / member.name for member in self.meta.members if member.kind == kind), None)


@dataclass(frozen=True)
class Unreadable:
    """A meta file that cannot be read. is_foreign: not because it is damaged (a newer flodl wrote it, no right to)."""

    round: int
    meta_path: Path
    problem: Problem
    is_foreign: bool


@dataclass(frozen=True)
class _Read:
    """A meta file as it was when it was read: time in ns, size, inode."""

    stamp: tuple[int, int, int]
    entry: Bundle | Unreadable


class BundleFolder:
    """The bundles of one stem in one folder; a meta file is read again only where it has changed."""

    def __init__(self, folder: Path, names: BundleNames) -> None:
        self.path = folder
        self.names = names
        self._known: dict[str, _Read] = {}

    def listed(self) -> list[str]:
        """The names of all files."""
        return sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []

    def entries(self) -> list[Bundle | Unreadable]:
        """Every meta file, the last saved first."""
        metas = {name: number for name in self.listed() if (number := self.names.as_meta(name)) is not None}
        self._known = {name: self._read(name, number) for name, number in metas.items()}
        known = list(self._known.values())
        bundles = [(read.stamp[0], read.entry.meta) for read in known if isinstance(read.entry, Bundle)]

        def order(read: _Read) -> tuple[int, bool, int]:
            """What cannot be read has no serial: neither its round nor its file's time may place it too high."""
            entry, at = read.entry, read.stamp[0]
            if isinstance(entry, Bundle):
                return entry.meta.serial, False, entry.round
            by_time = max((meta.serial for written, meta in bundles if written <= at), default=0)
            by_round = max((meta.serial for _, meta in bundles if meta.round < entry.round), default=0)
            return min(by_time, by_round), True, entry.round

        return [read.entry for read in sorted(known, key=order, reverse=True)]

    def bundle(self, meta: BundleMeta) -> Bundle:
        """The bundle that a meta describes."""
        return Bundle(self.path, self.path / self.names.meta(meta.round), meta)

    def fault(self, bundle: Bundle) -> Problem | None:
        """What is wrong with a bundle: each member must be there with its size and its digest; None: nothing."""
        return next((problem for member in bundle.meta.members if (problem := self._member_fault(member))), None)

    def _read(self, name: str, number: int) -> _Read:
        path, known = self.path / name, self._known.get(name)
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if known is not None and known.stamp == stamp:
                return known
            return _Read(stamp, self._parsed(path, number, status.st_size))
        except OSError as error:
            problem = Problem(key=str(path), constraint=f"cannot be read: {error.strerror or error}")
            return _Read((0, 0, 0), Unreadable(number, path, problem, is_foreign=True))

    def _parsed(self, path: Path, number: int, size: int) -> Bundle | Unreadable:
        try:
            if size > META_BYTES:
                raise _refused(path, f"is damaged: {size} bytes are too many for a meta file")
            meta = decode_meta(path.read_bytes(), str(path))
            self._require_own(meta, path, number)
        except ConfigError as error:
            problem = error.problems[0]
            return Unreadable(number, path, problem, is_foreign="damaged" not in problem.constraint)
        return self.bundle(meta)

    def _require_own(self, meta: BundleMeta, path: Path, number: int) -> None:
        """A meta names files of its own round beside it, and nothing elsewhere."""
        for member in meta.members:
            name = self.names.as_member(member.name)
            if name is None or (name.round, name.kind) != (number, member.kind):
                raise _refused(path, f"is damaged: it names {member.name!r}, which is no {member.kind} of its round")
        if meta.round != number or not any(member.kind == "model" for member in meta.members):
            raise _refused(path, f"is damaged: it says round {meta.round} and {len(meta.members)} members")

    def _member_fault(self, member: Member) -> Problem | None:
        path = self.path / member.name
        try:
            size = path.stat().st_size
            if size != member.size:
                return _damaged(path, f"{size} bytes, and its meta says {member.size}")
            digest = _digest(path)
        except FileNotFoundError:
            return _damaged(path, "the file is missing")
        except OSError as error:
            return _damaged(path, error.strerror or str(error))
        if digest != member.sha256:
            return _damaged(path, f"its SHA-256 is {digest}, and its meta says {member.sha256}")
        return None


def _refused(path: Path, constraint: str) -> ConfigError:
    return ConfigError([Problem(key=str(path), constraint=constraint)])


def _damaged(path: Path, how: str) -> Problem:
    return Problem(key=str(path), constraint=f"is damaged: {how}")


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            found.update(part)
    return found.hexdigest()
