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
from typing import Any

import msgspec

from flodl.decide.messages import (
    BundleKept,
    Command,
    End,
    Event,
    Goodbye,
    RankDied,
    RankFailed,
    Restart,
    SaveBegun,
    WindowDone,
)
from flodl.errors import FlodlError, in_words
from flodl.ports import UploadSink
from flodl.record.bundle import BundleStore, Saved
from flodl.record.bundle_folder import Bundle
from flodl.record.bundle_meta import BundleMeta
from flodl.record.bundle_names import PLAIN, Upload, as_upload
from flodl.record.saving import Saving
from flodl.record.sinks import LastSink, NoSink, PlainSink

__all__ = ["Keeper", "Owner"]

CLOSE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Whose bundles they are."""

    run_id: str
    spec_sha256: str
    world_size: int


@dataclass
class _Expected:
    """A save. plain: what of it is no tensor, once that has come. is_whole: all of it has come. kept: what came of it,
    once it has ended."""

    begun: SaveBegun
    snapshot: dict[str, Any]
    saving: Saving
    plain: bytes = b"{}"
    is_whole: bool = False
    kept: BundleKept | None = None

    def take_plain(self, data: bytes) -> None:
        """What of it is no tensor has come."""
        self.plain = data

    def is_of(self, begun: SaveBegun) -> bool:
        """Whether that order asks for this save, which has not failed."""
        has_failed = self.kept is not None and self.kept.error
        return (self.begun.rank, self.begun.round) == (begun.rank, begun.round) and not has_failed


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
        self._incarnations: dict[int, int] = {}  # of ranks that were started again
        self._figures: dict[int, dict[str, float]] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="flodl-keeper", daemon=True)
        self._thread.start()

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener, to be called before the commands are carried out."""
        if isinstance(event, WindowDone | Goodbye):
            self._hear(event)
        self._mourn(event)
        for command in commands:
            if isinstance(command, SaveBegun):
                self._begin(command)
            elif isinstance(command, Restart):
                self._incarnations[command.rank] = command.incarnation
            elif isinstance(command, End) and _all_were_lost(command, self._owner.world_size):
                self._jobs.put(self._mark_lost)

    def open_upload(self, rank: int, name: str) -> UploadSink | None:
        """Where the part of a bundle goes that a rank offers; None for other uploads. FlodlError where none is asked
        for: it is of a save that was given up, or of a rank that was not told to save."""
        upload = as_upload(name)
        if upload is None:
            return None
        expected = self._expected
        if expected is None or expected.begun.rank != rank or upload.round != expected.begun.round:
            raise FlodlError(f"rank {rank} offers {name}, which nobody has asked it for")
        if expected.is_whole:
            return NoSink()
        if upload.kind == PLAIN:
            return PlainSink(expected.take_plain)
        sink = expected.saving.open(upload.kind)
        return LastSink(sink, lambda: self._hand_on(expected)) if _is_last(upload) else sink

    def close(self) -> None:
        """What has arrived whole is put in place first; of what has not, nothing stays."""
        self._jobs.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._expected is not None and not self._thread.is_alive():
            self._expected.saving.abandon()

    # ------------------------------------------------------------------------------------------------------ inside

    def _begin(self, begun: SaveBegun) -> None:
        """A rank may be asked twice for one round: where the run has to end during a checkpoint. That is one save."""
        self._evaluating = begun if begun.evaluates else None
        expected = self._expected
        if expected is not None and expected.is_of(begun):
            expected.begun, expected.snapshot = begun, self._fixed()
            self._jobs.put(lambda: self._say_again(expected))
            return
        try:
            with self._lock:
                saving = self._store.begin(begun.round)
        except FlodlError as error:
            self._expected = None
            self._tell(BundleKept(at=0.0, rank=begun.rank, round=begun.round, error=str(error)))
            return
        self._expected = _Expected(begun, self._fixed(), saving)

    def _hear(self, event: WindowDone | Goodbye) -> None:
        """Of several evaluations in a report the last is of the weights that are saved: others are of void grants."""
        begun, judged = self._evaluating, [result for result in event.callbacks if result.name == "eval"]
        if begun is not None and begun.rank == event.rank and judged and judged[-1].ok:
            figures = dict(judged[-1].values)
            self._jobs.put(lambda: self._judge(begun.round, figures))
            self._evaluating = None

    def _mourn(self, event: Event) -> None:
        """Of a save that a rank had not sent to its end when it was lost nothing more is awaited."""
        expected = self._expected
        if not isinstance(event, RankDied | RankFailed) or expected is None or expected.begun.rank != event.rank:
            return
        if event.incarnation == self._incarnations.get(event.rank, 0):
            self._jobs.put(lambda: self._give_up(expected))

    def _give_up(self, expected: _Expected) -> None:
        if expected.kept is None and not expected.is_whole:
            begun = expected.begun
            error = f"rank {begun.rank} is gone, and had not sent all of it"
            expected.kept = BundleKept(at=0.0, rank=begun.rank, round=begun.round, error=error)
            self._tell(expected.kept)

    def _hand_on(self, expected: _Expected) -> None:
        expected.is_whole = True
        self._jobs.put(lambda: self._commit(expected))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _commit(self, expected: _Expected) -> None:
        if expected.kept is not None:
            return  # it was given up
        begun = expected.begun
        kept = BundleKept(at=0.0, rank=begun.rank, round=begun.round)
        try:
            saved = self._saved(expected)
            kept = msgspec.structs.replace(kept, remarks=saved.remarks)
        except Exception as error:  # noqa: BLE001  whatever it is: for word of a save the end of a run waits
            kept = msgspec.structs.replace(kept, error=_in_words(error))
        expected.kept = kept
        self._tell(kept)

    def _saved(self, expected: _Expected) -> Saved:
        begun = expected.begun
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
            plain=msgspec.json.decode(expected.plain),
        )
        with self._lock:
            return self._store.commit(expected.saving, meta)

    def _say_again(self, expected: _Expected) -> None:
        """A save that has ended, or not yet, was asked for once more, for another reason."""
        if expected.kept is None:
            return  # its end will be told, with that reason
        kept, bundle = expected.kept, self._bundle(expected.begun.round)
        if bundle is not None and not kept.error:
            try:
                with self._lock:
                    self._store.amend(bundle, reason=expected.begun.why)
            except Exception as error:  # noqa: BLE001  as above; the bundle is whole, and says why it was saved first
                kept = msgspec.structs.replace(kept, remarks=(*kept.remarks, _in_words(error)))
        self._tell(kept)

    def _judge(self, number: int, figures: dict[str, float]) -> None:
        """An evaluation of the weights of round `number`: into its bundle, or kept until there is one."""
        try:
            bundle = self._bundle(number)
            if bundle is None:
                self._figures = {number: figures}
                return
            with self._lock:
                self._store.amend(bundle, figures=figures)
        except Exception as error:  # noqa: BLE001  the saves to come need this thread
            self._tell(BundleKept(at=0.0, rank=-1, round=number, error=_in_words(error)))

    def _bundle(self, number: int) -> Bundle | None:
        """That of a round, where it is there."""
        return next((bundle for bundle in self._store.bundles() if bundle.round == number), None)

    def _mark_lost(self) -> None:
        with contextlib.suppress(FlodlError, OSError):  # a full disk: the bundle is whole, and says why it was saved
            newest = self._store.newest()
            if newest is not None and newest.meta.run_id == self._owner.run_id:
                with self._lock:
                    self._store.amend(newest, reason="all_ranks_lost")


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else in_words(error)  # the system's say which file and why


def _all_were_lost(end: End, world_size: int) -> bool:
    """They are dead, and what they were to train is not all there."""
    return end.status == "failed" and len(end.totals.dead_ranks) == world_size


def _is_last(upload: Upload) -> bool:
    """The model comes last: with it a save is whole."""
    return upload.kind == "model"
