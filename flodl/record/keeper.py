"""The record's part in a save: where a rank's bytes go, and the commit that makes a bundle of them.

The drive's thread hears of saves, the link's thread brings bytes, and a thread of its own does what waits for the disk.
Whatever comes of a save is told as an event: `BundleKept`.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from flodl.decide.messages import BundleKept, Command, End, Event, Goodbye, SaveBegun, WindowDone
from flodl.errors import FlodlError
from flodl.record.bundle import BundleStore
from flodl.record.bundle_meta import BundleMeta
from flodl.record.bundle_names import PLAIN, Upload, as_upload
from flodl.record.saving import Saving

__all__ = ["Keeper", "Owner"]

CLOSE_SECONDS = 60.0


class _Sink(Protocol):
    """Where one upload goes."""

    def write(self, data: memoryview) -> object:
        """More bytes."""
        ...

    def commit(self, sha256: str) -> None:
        """All are there; sha256: their digest."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose bundles they are."""

    run_id: str
    spec_sha256: str
    world_size: int


@dataclass
class _Expected:
    """A save under way. plain: what of it is no tensor, once that has come."""

    begun: SaveBegun
    snapshot: dict[str, Any]
    saving: Saving
    plain: bytes = b"{}"


class Keeper:
    """Keeps one run's bundles. fixed: tells what the coordinator knew when it ordered the save. tell: takes events."""

    def __init__(
        self,
        store: BundleStore,
        owner: Owner,
        *,
        fixed: Callable[[], dict[str, Any]],
        tell: Callable[[Event], None],
    ) -> None:
        self._store, self._owner, self._fixed, self._tell = store, owner, fixed, tell
        self._expected: _Expected | None = None
        self._lock = threading.Lock()  # of the store: one writer at a time
        self._evaluating: SaveBegun | None = None
        self._figures: dict[int, dict[str, float]] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="flodl-keeper", daemon=True)
        self._thread.start()

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener, to be called before the commands are carried out."""
        if isinstance(event, WindowDone | Goodbye) and self._evaluating is not None:
            for result in event.callbacks:
                if result.name == "eval" and result.ok and event.rank == self._evaluating.rank:
                    number, figures = self._evaluating.round, dict(result.values)
                    self._jobs.put(lambda number=number, figures=figures: self._judge(number, figures))
                    self._evaluating = None
                    break
        for command in commands:
            if isinstance(command, SaveBegun):
                self._begin(command)
            elif isinstance(command, End) and len(command.totals.dead_ranks) == self._owner.world_size:
                self._jobs.put(self._mark_lost)

    def open_upload(self, rank: int, name: str) -> _Sink | None:
        """Where the part of a bundle goes that a rank offers; None for other uploads. FlodlError where none is asked
        for: it is of a save that was given up, or of a rank that was not told to save."""
        upload = as_upload(name)
        if upload is None:
            return None
        expected = self._expected
        if expected is None or expected.begun.rank != rank or upload.round != expected.begun.round:
            raise FlodlError(f"rank {rank} offers {name}, which nobody has asked it for")
        if upload.kind == PLAIN:
            return _PlainSink(expected)
        sink = expected.saving.open(upload.kind)
        return _LastSink(sink, lambda: self._jobs.put(lambda: self._commit(expected))) if _is_last(upload) else sink

    def close(self) -> None:
        """What has arrived whole is put in place first; of what has not, nothing stays."""
        self._jobs.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._expected is not None and not self._thread.is_alive():
            self._expected.saving.abandon()

    # ------------------------------------------------------------------------------------------------------ inside

    def _begin(self, begun: SaveBegun) -> None:
        self._evaluating = begun if begun.evaluates else None
        try:
            with self._lock:
                saving = self._store.begin(begun.round)
        except FlodlError as error:
            self._expected = None
            self._tell(BundleKept(at=0.0, rank=begun.rank, round=begun.round, error=str(error)))
            return
        self._expected = _Expected(begun, self._fixed(), saving)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _commit(self, expected: _Expected) -> None:
        begun = expected.begun
        kept = BundleKept(at=0.0, rank=begun.rank, round=begun.round)
        meta = BundleMeta(
            run_id=self._owner.run_id,
            spec_sha256=self._owner.spec_sha256,
            reason=begun.why,
            round=begun.round,
            generation=begun.generation,
            epoch=begun.epoch,
            global_step=begun.global_step,
            world_size=self._owner.world_size,
            figures=self._figures.pop(begun.round, {}),
            coordinator=expected.snapshot,
        )
        try:
            meta = msgspec.structs.replace(meta, plain=msgspec.json.decode(expected.plain))
            with self._lock:
                saved = self._store.commit(expected.saving, meta)
            kept = msgspec.structs.replace(kept, remarks=saved.remarks)
        except (FlodlError, OSError, msgspec.MsgspecError) as error:
            kept = msgspec.structs.replace(kept, error=str(error))
        self._tell(kept)

    def _judge(self, number: int, figures: dict[str, float]) -> None:
        """An evaluation of the weights of round `number`: into its bundle, or kept until there is one."""
        try:
            bundle = next((bundle for bundle in self._store.bundles() if bundle.round == number), None)
            if bundle is None:
                self._figures = {number: figures}
                return
            with self._lock:
                self._store.amend(bundle, figures=figures)
        except (FlodlError, OSError) as error:
            self._tell(BundleKept(at=0.0, rank=-1, round=number, error=str(error)))

    def _mark_lost(self) -> None:
        with contextlib.suppress(FlodlError, OSError):  # a full disk: the bundle is whole, and says why it was saved
            newest = self._store.newest()
            if newest is not None and newest.meta.run_id == self._owner.run_id:
                with self._lock:
                    self._store.amend(newest, reason="all_ranks_lost")


def _is_last(upload: Upload) -> bool:
    """The model comes last: with it a save is whole."""
    return upload.kind == "model"


class _PlainSink:
    def __init__(self, expected: _Expected) -> None:
        self._expected = expected
        self._parts = bytearray()

    def write(self, data: memoryview) -> None:
        self._parts += data

    def commit(self, sha256: str) -> None:
        self._expected.plain = bytes(self._parts)

    def abandon(self) -> None:
        self._parts.clear()


class _LastSink:
    def __init__(self, sink: _Sink, on_whole: Callable[[], None]) -> None:
        self._sink, self._on_whole = sink, on_whole
        self.write, self.abandon = sink.write, sink.abandon

    def commit(self, sha256: str) -> None:
        self._sink.commit(sha256)
        self._on_whole()
