"""One save in progress: its members as they arrive, and the one rename that makes a bundle of them.

Nothing that is there is touched before that rename; whatever goes wrong until then leaves the bundles as they were.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from flodl.errors import FlodlError
from flodl.record.bundle_meta import BundleMeta, Member, encode_meta
from flodl.record.bundle_names import BundleNames, Kind
from flodl.record.files import AtomicFile, write_atomically

__all__ = ["HeldWeights", "MemberSink", "Saving", "WeightsSink", "save_error"]


def save_error(error: OSError, path: Path, round_: int) -> FlodlError:
    """Why there is no bundle of a round."""
    return _refusal(error, path, f"the bundle of round {round_} was not saved")


def _refusal(error: OSError, path: Path, what: str) -> FlodlError:
    """A refusal of the file system in words: which file, what it said, its name for that, and what it means."""
    name = f" ({errno.errorcode.get(error.errno, error.errno)})" if error.errno is not None else ""
    return FlodlError(f"{path}: {error.strerror or error}{name}: {what}")


class WeightsSink(AtomicFile):
    """Where the newest weights go, for people: the older ones stay until these are whole. Raises FlodlError."""

    def __init__(self, path: Path) -> None:
        with _weights_told(path):
            path.parent.mkdir(exist_ok=True)
            super().__init__(path)

    def write(self, data: bytes | memoryview) -> None:
        """More bytes."""
        with _weights_told(self.path):
            super().write(data)

    def commit(self) -> None:
        """All are there."""
        with _weights_told(self.path):
            super().commit()

    def abandon(self) -> None:
        """Leave nothing behind (what the file system keeps is swept at the next save). Harmless after a commit."""
        with contextlib.suppress(OSError):
            super().abandon()


class HeldWeights(WeightsSink):
    """The weights beside a bundle: whole and durable under their temporary name, until the bundle is in place."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_whole = False

    def commit(self) -> None:
        """All are there."""
        with _weights_told(self.path):
            self.settle()
        self.is_whole = True

    def place(self) -> str:
        """Give them their name, where they are whole; why that failed, "" where it did not."""
        if not self.is_whole:
            self.abandon()
            return ""
        try:
            super().commit()
        except FlodlError as error:
            self.abandon()
            return str(error)
        return ""


@contextlib.contextmanager
def _weights_told(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _refusal(error, path, "the weights were not stored") from error


class MemberSink:
    """Where one member's bytes go: under a temporary name, the digest taken as they pass. Raises FlodlError."""

    def __init__(self, path: Path, kind: Kind, round_: int) -> None:
        self.path, self.round = path, round_
        self.kind: Kind = kind
        self.size = 0
        self.is_whole = self.is_over = False
        self._digest = hashlib.sha256()
        try:
            self._file = AtomicFile(path)
        except OSError as error:
            raise save_error(error, path, round_) from error

    def write(self, data: bytes | memoryview) -> None:
        """More bytes."""
        self._require_open()
        try:
            self._file.write(data)
        except OSError as error:
            raise save_error(error, self.path, self.round) from error
        self._digest.update(data)
        self.size += len(data) if isinstance(data, bytes) else data.nbytes

    def commit(self) -> None:
        """All bytes are there. The file stays under its temporary name until the whole bundle is put in place."""
        self._require_open()
        self.is_whole = True

    def abandon(self) -> None:
        """Leave nothing behind (what the file system keeps is swept later). Harmless after all is in place."""
        self.is_over = True
        with contextlib.suppress(OSError):
            self._file.abandon()

    def place(self) -> Member:
        """Make it durable and give it its name."""
        try:
            self._file.commit()
        except OSError as error:
            raise save_error(error, self.path, self.round) from error
        self.is_over = True
        return Member(kind=self.kind, name=self.path.name, size=self.size, sha256=self._digest.hexdigest())

    def _require_open(self) -> None:
        if self.is_over:
            raise FlodlError(f"{self.path}: the save of round {self.round} is over; a later one has begun")


class Saving:
    """A bundle that is not there yet. Made by `BundleStore.begin`; its sinks may be fed from another thread.

    place: the round, and the take of its members' names. sweep: removes what no meta names.
    """

    def __init__(
        self,
        folder: Path,
        names: BundleNames,
        place: tuple[int, int],
        *,
        sweep: Callable[[], object],
    ) -> None:
        self.round, self._take = place
        self._folder, self._names, self._sweep = folder, names, sweep
        self._sinks: dict[Kind, MemberSink] = {}
        self._weights: dict[str, HeldWeights] = {}

    def open(self, kind: Kind) -> MemberSink:
        """The sink of one member; a second one of a kind takes the place of the first (the upload began anew)."""
        if kind in self._sinks:
            self._sinks.pop(kind).abandon()
        path = self._folder / self._names.member(self.round, kind, self._take)
        self._sinks[kind] = MemberSink(path, kind, self.round)
        return self._sinks[kind]

    def open_weights(self, name: str) -> HeldWeights:
        """The sink of the weights for people, of that name; a second one takes the place of the first."""
        if name in self._weights:
            self._weights.pop(name).abandon()
        self._weights[name] = HeldWeights(self._folder / name)
        return self._weights[name]

    def place_weights(self) -> tuple[str, ...]:
        """The bundle is there: so are the weights that came with it. Remarks."""
        remarks = [held.place() for held in self._weights.values()]
        return tuple(remark for remark in remarks if remark)

    def abandon(self) -> None:
        """Forget it; the bundles, and the weights beside them, stay as they were."""
        for sink in (*self._sinks.values(), *self._weights.values()):
            sink.abandon()

    def place(self, meta: BundleMeta) -> BundleMeta:
        """Put members, then the meta in place: from then on there is a bundle. Returns the meta with its members.

        Raises FlodlError, and then nothing has changed.
        """
        try:
            self._require_whole(meta)
            encode_meta(meta)  # what JSON cannot hold is told before anything has a name
            placed = msgspec.structs.replace(meta, members=tuple(sink.place() for sink in self._sinks.values()))
            self._write(placed)
        except BaseException:
            self.abandon()
            self._sweep()
            raise
        return placed

    def _write(self, meta: BundleMeta) -> None:
        path, data = self._folder / self._names.meta(self.round), encode_meta(meta)
        try:
            write_atomically(path, data)
        except OSError as error:
            raise save_error(error, path, self.round) from error

    def _require_whole(self, meta: BundleMeta) -> None:
        missing = [sink.path.name for sink in self._sinks.values() if not sink.is_whole]
        if meta.round != self.round:
            raise FlodlError(f"a meta of round {meta.round} cannot end the save of round {self.round}")
        if missing or "model" not in self._sinks:
            name = missing[0] if missing else self._names.member(self.round, "model", self._take)
            raise FlodlError(f"{self._folder / name}: not all of it has arrived: round {self.round} was not saved")
