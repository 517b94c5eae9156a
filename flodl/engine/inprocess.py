"""A run of one rank in the controller's own process, for a debugger: no agent, no link, no other process.

The rank trains on the main thread, where pdb can talk to a person; the coordinator's drive runs beside it. This is the
one case in which a controller loads torch and may touch a GPU.
"""

from __future__ import annotations

import hashlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from flodl.decide.messages import Command, EndBy, Event, Finish, RankOrder, TimeReached
from flodl.decide.roster import Place
from flodl.engine.birth import prepare
from flodl.engine.keys import make_keys
from flodl.engine.payload import RankPayload
from flodl.engine.serving import ReadPart
from flodl.errors import FlodlError, Interrupted
from flodl.ports import UploadSink
from flodl.spec.job import JobSpec

__all__ = ["InProcessWorld", "payload_here"]

T = TypeVar("T")


class InProcessWorld:
    """`World` for the drive and a link for the rank: two queues between two threads."""

    def __init__(self, open_upload: Callable[[int, str], UploadSink], read: ReadPart | None = None) -> None:
        self._read = read
        self.progress, self.activity = 0, ""
        self.on_regroup: Callable[[int], None] | None = None
        self._is_interrupted = False
        self._open_upload = open_upload
        self._news: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[RankOrder] = queue.SimpleQueue()

    def while_driven(self, drive: Callable[[], T], payload: RankPayload) -> T:
        """Be the rank while `drive` runs beside it; what that returns or raises. Raises Interrupted at Ctrl-C."""
        from flodl.engine.worker import serve  # late: it loads torch

        ended: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                ended.put((drive(), None))
            except BaseException as error:  # noqa: BLE001  raised again on the main thread
                ended.put((None, error))
            self.close()

        threading.Thread(target=work, name="flodl-drive", daemon=True).start()
        serve(payload, self)
        end, error = ended.get()
        if self._is_interrupted:
            raise Interrupted("Ctrl-C")
        if error is not None:
            raise error
        assert end is not None
        return end

    # --------------------------------------------------------------------------------------------- the drive's side

    def next_event(self, timeout_seconds: float, deadline: float | None = None) -> Event | None:
        """The next event, stamped."""
        limit = timeout_seconds if deadline is None else min(timeout_seconds, max(0.0, deadline - time.monotonic()))
        try:
            news = self._news.get(timeout=limit)
        except queue.Empty:
            now = time.monotonic()
            return TimeReached(at=now) if deadline is not None and now >= deadline else None
        return msgspec.structs.replace(news, at=time.monotonic())

    def execute(self, command: Command) -> None:
        """Hand an order to the rank."""
        if isinstance(command, RankOrder):
            self._orders.put(command)

    def end_by(self, seconds_left: float, rule: str) -> None:
        """Tell that the run has to be over in so many seconds from now."""
        self._news.put(EndBy(at=0.0, seconds_left=seconds_left, rule=rule))

    def tell(self, event: Event) -> None:
        """Something that the record has to say."""
        self._news.put(event)

    def close(self) -> None:
        """The rank leaves, whatever it waits for."""
        self._orders.put(Finish(to=(0,), reason="the run is over"))

    # ---------------------------------------------------------------------------------------------- the rank's side

    def send(self, event: Event) -> None:
        """Tell the coordinator."""
        self._is_interrupted = self._is_interrupted or isinstance(sys.exception(), KeyboardInterrupt)
        self._news.put(event)

    def receive(self, timeout_seconds: float | None) -> RankOrder | None:
        """The next order; None when none came in time, None as a limit waits for ever."""
        try:
            return self._orders.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def pending(self) -> bool:
        """Whether an order is there."""
        return not self._orders.empty()

    def store(self, generation: int) -> NoReturn:
        """There is nobody to meet."""
        raise FlodlError(f"generation {generation}: a run in one process has one rank")

    def download(self, name: str) -> bytearray:
        """A part of the bundle that the run goes on from."""
        if self._read is None:
            raise FlodlError(f"{name}: this run begins anew")
        whole, total = bytearray(), 1
        while len(whole) < total:
            data, total = self._read(name, len(whole))
            whole += data
        return whole

    def upload(self, files: Iterable[tuple[str, Iterable[memoryview]]]) -> None:
        """Store files in the run folder."""
        for name, chunks in files:
            sink, digest = self._open_upload(0, name), hashlib.sha256()
            try:
                for chunk in chunks:
                    sink.write(chunk)
                    digest.update(chunk)
                sink.commit(digest.hexdigest())
            except BaseException:
                sink.abandon()
                raise


def payload_here(job: JobSpec, place: Place, run_id: str, threads: int) -> RankPayload:
    """What the only rank is told; this process then has its environment and threads."""
    host = next(host for host in job.cluster.workers if host.host == place.host)
    keys = make_keys([place.rank])
    payload = RankPayload(
        run_id=run_id,
        job=job,
        rank=place.rank,
        world=(place,),
        host=place.host,
        device=place.device,
        local_rank=0,
        control="",
        bulk="",
        server_key=keys.server.public,
        keys=keys.by_rank[place.rank],
        threads=threads,
        speed=place.speed,
        data_path=host.data_path,
        path=host.path or str(Path.cwd()),
    )
    os.environ.update(job.cluster.env_of(host))
    prepare(payload)
    return payload
