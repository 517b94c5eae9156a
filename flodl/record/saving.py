"""One save in progress: its members as they arrive, and the one rename that makes a bundle of them.

Nothing that is there is touched before that rename; whatever goes wrong until then leaves the bundles as they were.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from flodl.errors import FlodlError
from flodl.record.bundle_meta import BundleMeta, Member, encode_meta
from flodl.record.bundle_names import BundleNames, Kind
from flodl.record.files import AtomicFile, refusal, write_atomically

__all__ = ["MemberSink", "Saving", "save_error"]


def save_error(error: OSError, path: Path, round_: int) -> FlodlError:
    """Why there is no bundle of a round."""
    return refusal(error, path, f"the bundle of round {round_} was not saved")


class MemberSink:
    """Where one member's bytes go: under a temporary name. Raises FlodlError."""

    def __init__(self, path: Path, kind: Kind, round_: int) -> None:
        self.path, self.round = path, round_
        self.kind: Kind = kind
        self.size = 0
        self.is_over = False
        self.sha256 = ""
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
        self.size += len(data) if isinstance(data, bytes) else data.nbytes

    def commit(self, sha256: str) -> None:
        """All bytes are there, and this is their digest: whoever brought them has compared it with the sender's. The
        file stays under its temporary name until the whole bundle is put in place."""
        self._require_open()
        self.sha256 = sha256

    def abandon(self) -> None:
        """Leave nothing behind (what the file system keeps is swept later). Harmless after all is in place."""
        self.is_over = True
        with contextlib.suppress(OSError):
            self._file.abandon()

    @property
    def member(self) -> Member:
        """What the meta says of it."""
        return Member(kind=self.kind, name=self.path.name, size=self.size, sha256=self.sha256)

    def place(self) -> None:
        """Make it durable and give it its name."""
        try:
            self._file.commit()
        except OSError as error:
            raise save_error(error, self.path, self.round) from error
        self.is_over = True

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
        self._is_over = False
        self._lock = threading.Lock()  # members come on one thread, and are put in place, or not, by others

    def open(self, kind: Kind) -> MemberSink:
        """The sink of one member; a second one of a kind takes the place of the first (the upload began anew).

        Raises FlodlError, also once the bundle is being put in place or was abandoned.
        """
        path = self._folder / self._names.member(self.round, kind, self._take)
        with self._lock:
            if self._is_over:
                raise FlodlError(f"{path}: the save of round {self.round} is over")
            if kind in self._sinks:
                self._sinks.pop(kind).abandon()
            self._sinks[kind] = MemberSink(path, kind, self.round)
            return self._sinks[kind]

    def abandon(self) -> None:
        """Forget it; the bundles stay as they were."""
        for sink in self._closed().values():
            sink.abandon()

    def _closed(self) -> dict[Kind, MemberSink]:
        """Its members; from now on there are no others."""
        with self._lock:
            self._is_over = True
            return self._sinks

    def place(self, meta: BundleMeta) -> BundleMeta:
        """Put members, then the meta in place: from then on there is a bundle. Returns the meta with its members.

        Raises FlodlError, and then nothing has changed.
        """
        sinks = self._closed()
        try:
            self._require_whole(meta)
            placed = msgspec.structs.replace(meta, members=tuple(sink.member for sink in sinks.values()))
            data = encode_meta(placed)  # what JSON cannot hold is told before anything has a name
            for sink in sinks.values():
                sink.place()
            self._write(data)
        except BaseException:
            self.abandon()
            self._sweep()
            raise
        return placed

    def _write(self, data: bytes) -> None:
        path = self._folder / self._names.meta(self.round)
        try:
            write_atomically(path, data)
        except OSError as error:
            raise save_error(error, path, self.round) from error

    def _require_whole(self, meta: BundleMeta) -> None:
        missing = [sink.path.name for sink in self._sinks.values() if not sink.sha256]
        if meta.round != self.round:
            raise FlodlError(f"a meta of round {meta.round} cannot end the save of round {self.round}")
        if missing or "model" not in self._sinks:
            name = missing[0] if missing else self._names.member(self.round, "model", self._take)
            raise FlodlError(f"{self._folder / name}: not all of it has arrived: round {self.round} was not saved")
