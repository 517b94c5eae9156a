"""A controller's side of the link with real sockets, and ranks' links to it: for tests that need no process."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from flodl.decide.messages import Goodbye
from flodl.decide.timeouts import Timeouts
from flodl.engine.keys import KeyPair, make_keys
from flodl.engine.link import RankLink
from flodl.engine.protocol import RankEvent
from flodl.engine.server import LinkServer, Listen
from flodl.ports import UploadSink

__all__ = ["RUN", "SHORT", "Controller", "Door", "Memory", "bye", "dialled", "listening"]

RUN = "run-of-a-test"
SHORT = Timeouts(heartbeat=0.05, dead=0.5)


class Door(msgspec.Struct, frozen=True):
    """What a rank must know to dial."""

    run_id: str
    control: str
    bulk: str
    server_key: bytes
    keys: KeyPair


class Memory:
    """A sink that keeps the bytes."""

    def __init__(self, trouble: str = "") -> None:
        self.data, self.committed, self.abandoned, self.trouble = bytearray(), "", False, trouble
        self.parts = 0

    def write(self, data: memoryview) -> None:
        if self.trouble:
            raise OSError(28, self.trouble)
        self.data += data
        self.parts += 1

    def commit(self, sha256: str) -> None:
        self.committed = sha256

    def abandon(self) -> None:
        self.abandoned = True


class Controller:
    """A server for two ranks, and what it heard."""

    def __init__(self, limits: Timeouts | None = None) -> None:
        self.keys = make_keys(range(2))
        self.events: queue.SimpleQueue[RankEvent] = queue.SimpleQueue()
        self.sink = Memory()
        self.server = LinkServer.bind(
            Listen("127.0.0.1", 0, RUN, self.keys, limits or Timeouts()),
            on_event=self.events.put,
            open_upload=self.open,
        )

    def open(self, rank: int, name: str) -> UploadSink:
        return self.sink

    def door(self, rank: int = 0, *, run: str = RUN, keys: KeyPair | None = None, server: bytes | None = None) -> Door:
        ends = self.server.endpoints
        return Door(run, *ends, server or self.keys.server.public, keys or self.keys.by_rank[rank])


@contextmanager
def dialled(door: Door, seconds: float = 10.0) -> Iterator[RankLink]:
    link = RankLink.dial(door, timeout_seconds=seconds)
    try:
        yield link
    finally:
        link.close()


def bye(rank: int) -> Goodbye:
    return Goodbye(at=0.0, rank=rank)


@contextmanager
def listening(limits: Timeouts, dials: Timeouts) -> Iterator[tuple[Controller, RankLink, queue.SimpleQueue[str]]]:
    """A server, one rank's link, and why that was told to end itself."""
    controller = Controller(limits)
    link = RankLink.dial(controller.door(0), limits=dials)
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    link.on_lost = lost.put
    try:
        yield controller, link, lost
    finally:
        link.close(flush_seconds=0.0)
        controller.server.close()
