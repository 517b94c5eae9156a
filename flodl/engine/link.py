"""A rank's connection to its controller. Imports no torch (`store` does, when it is asked for).

The socket belongs to a background thread (see `wire`); the training thread sends in its own time and looks at
`pending` as often as it likes. The peer is the controller whose public key the rank was handed; a stranger on the
port, a wrong key and silence all end in `NotReady` with the reason, within ten seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from flodl.decide.messages import FormGroup
from flodl.decide.timeouts import Timeouts
from flodl.engine import protocol
from flodl.engine.downloading import download
from flodl.engine.keys import KeyPair
from flodl.engine.protocol import Answer, Ask, Beat, Evicted, Hello, Pulse, RankCommand, RankEvent, Up, Welcome
from flodl.engine.wire import Frames, SharedSocket
from flodl.errors import FlodlError, NotReady

if TYPE_CHECKING:
    from flodl.engine.store import LinkStore

__all__ = ["Dialled", "LinkClosedError", "RankLink"]

DIAL_SECONDS = 10.0
UPLOAD_SECONDS = 120.0
IN_FLIGHT_PARTS = 8

Bytes = bytes | memoryview


class LinkClosedError(FlodlError):
    """The connection to the controller was closed on this side."""


class Dialled(Protocol):
    """What a link must be told; `RankPayload` is one."""

    @property
    def run_id(self) -> str: ...
    @property
    def control(self) -> str: ...
    @property
    def bulk(self) -> str: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def keys(self) -> KeyPair: ...


class RankLink:
    """Made by `dial`. progress and activity: written by the training loop, carried by the heartbeats.

    on_lost: called in the reading thread, with the reason, once the controller has not been heard for the dead limit
    or has declared this rank dead. It may not return. on_regroup: called there with the number of a new generation as
    soon as it is announced, whatever the training thread does. It may not block.
    """

    on_lost: Callable[[str], None] | None = None
    on_regroup: Callable[[int], None] | None = None

    def __init__(
        self,
        where: Dialled,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        limits: Timeouts,
    ) -> None:
        self.progress = 0
        self.activity = ""
        self._limits = limits
        self._heard = time.monotonic()
        self._where = where
        self._context = context
        self._inbox: queue.SimpleQueue[RankCommand | None] = queue.SimpleQueue()
        self._asked: dict[int, queue.SimpleQueue[Answer]] = {}
        self._ask_lock = threading.Lock()
        self._next_ask = 0
        self._welcomed = threading.Event()
        self._closed = False
        self._dropped = 0
        self._wire = SharedSocket(socket, self._receive, self._beat, tick_seconds=limits.heartbeat)

    @classmethod
    def dial(cls, where: Dialled, *, timeout_seconds: float = DIAL_SECONDS, limits: Timeouts | None = None) -> RankLink:
        """Connect, shake hands, greet. Raises NotReady, in words, where that does not succeed in time."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        socket = _socket(context, where, where.control)
        monitor = socket.get_monitor_socket(zmq.EVENT_ALL)
        socket.connect(where.control)
        link = cls(where, context, socket, limits or Timeouts())
        link._wire.start()
        with contextlib.suppress(FlodlError):  # it may be refused by now, and then the monitor tells why
            link._post(Hello(pid=os.getpid()))
        trouble = _await(link._welcomed, monitor, timeout_seconds)
        monitor.close(linger=0)
        if trouble:
            link.close(flush_seconds=0.0)
            raise NotReady(f"no connection to the controller at {where.control}: {trouble}")
        return link

    # ------------------------------------------------------------------------------------------------- training

    def send(self, event: RankEvent) -> None:
        """Tell the coordinator something; `at` is stamped there. Thread-safe, never blocks.

        Raises ValueError where a field is NaN or infinite, LinkClosedError after `close`.
        """
        field = protocol.nonfinite_field(event)
        if field:
            raise ValueError(f"{type(event).__name__}.{field} is not finite")
        self._post(event)

    def receive(self, timeout_seconds: float | None) -> RankCommand | None:
        """The next order; None when none came in time (None waits for ever). Raises LinkClosedError after `close`."""
        try:
            command = self._inbox.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        if command is None:
            self._inbox.put(None)
            raise LinkClosedError("the link is closed")
        return command

    def pending(self) -> bool:
        """True when `receive` would return at once. No system call."""
        return not self._inbox.empty()

    def store(self, generation: int = 0) -> LinkStore:
        """A torch.distributed.Store under this generation's prefix."""
        from flodl.engine.store import LinkStore

        return LinkStore(self, prefix=f"g{generation}/")

    @property
    def dropped_frames(self) -> int:
        """Malformed frames that came in."""
        return self._dropped

    def upload(self, files: Iterable[tuple[str, Iterable[Bytes]]]) -> None:
        """Send files (name, bytes in pieces) to the controller, one after another over one connection of their own;
        returns when all are whole and in place there.

        Raises FlodlError with the controller's reason where one is not; those after it are not sent.
        """
        socket = _socket(self._context, self._where, self._where.bulk)
        try:
            socket.connect(self._where.bulk)
            for name, chunks in files:
                _upload(socket, self._where.run_id, name, chunks)
        finally:
            socket.close(linger=0)

    def download(self, name: str) -> bytearray:
        """A part of the bundle that the run goes on from, whole; empty where the bundle has no such part.

        Raises FlodlError with the controller's reason where it does not come.
        """
        socket = _socket(self._context, self._where, self._where.bulk)
        try:
            socket.connect(self._where.bulk)
            return download(socket, self._where.run_id, name, UPLOAD_SECONDS)
        finally:
            socket.close(linger=0)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the controller has read everything that was sent; False where it does not answer in time."""
        try:
            self.ask(Ask(id=0, op="ping"), timeout_seconds)
        except (TimeoutError, LinkClosedError):
            return False
        return True

    def close(self, flush_seconds: float = 2.0) -> None:
        """Leave. Waits, bounded, until what was sent has been read: so an exit is never seen before its goodbye."""
        if self._closed:
            return
        if flush_seconds and self._welcomed.is_set():
            self.flush(flush_seconds)
        self._closed = True
        self._inbox.put(None)
        self._wire.close()
        with self._ask_lock:
            for waiting in self._asked.values():
                waiting.put(Answer(id=0, error="closed"))
        self._context.destroy(linger=0)

    # ------------------------------------------------------------------------------------------------ questions

    def ask(self, ask: Ask, timeout_seconds: float) -> Answer:
        """Put a question to the controller's store; its id is given here. Any thread.

        Raises TimeoutError, LinkClosedError; an Answer's own error is the caller's.
        """
        mine: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._ask_lock:
            self._next_ask += 1
            number = self._next_ask
            self._asked[number] = mine
        try:
            self._post(msgspec.structs.replace(ask, id=number))
            answer = mine.get(timeout=timeout_seconds)
        except queue.Empty:
            raise TimeoutError(f"the controller did not answer {ask.op} within {timeout_seconds:g} s") from None
        finally:
            with self._ask_lock:
                del self._asked[number]
        if self._closed and answer.error == "closed":
            raise LinkClosedError("the link is closed")
        return answer

    # ------------------------------------------------------------------------------------- the reading thread's

    def _receive(self, frames: Frames) -> None:
        frame = protocol.down(frames[0].bytes, self._where.run_id) if len(frames) == 1 else None
        if frame is None:
            self._dropped += 1
            return
        self._heard = time.monotonic()
        if isinstance(frame.message, Pulse):
            return
        if isinstance(frame.message, Evicted):
            self._lose("the controller has declared this rank dead")
        elif isinstance(frame.message, Answer):
            with self._ask_lock:
                asked = self._asked.get(frame.message.id)
            if asked is not None:
                asked.put(frame.message)
        elif isinstance(frame.message, Welcome):
            self._welcomed.set()
        else:
            self._inbox.put(frame.message)
            if isinstance(frame.message, FormGroup) and self.on_regroup is not None:
                self.on_regroup(frame.message.generation)

    def _beat(self) -> None:
        if self._welcomed.is_set():
            silent = time.monotonic() - self._heard
            if silent > self._limits.dead:
                self._lose(f"nothing was heard from the controller for {silent:.1f} s")
            with contextlib.suppress(LinkClosedError, FlodlError):
                self._post(Beat(progress=self.progress, activity=self.activity))

    def _lose(self, why: str) -> None:
        if self.on_lost is not None and not self._closed:
            self.on_lost(why)

    def _post(self, message: RankEvent | Hello | Beat | Ask) -> None:
        data = protocol.encode(Up(self._where.run_id, message))
        try:
            self._wire.send((data,))
        except zmq.Again:
            raise FlodlError("the controller takes no more messages: it is gone or hangs") from None
        except zmq.ZMQError:
            raise LinkClosedError("the link is closed") from None


def _socket(context: zmq.Context[zmq.Socket[bytes]], where: Dialled, endpoint: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.CURVE_SERVERKEY, where.server_key)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, where.keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, where.keys.secret)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
    socket.setsockopt(zmq.MAXMSGSIZE, protocol.CONTROL_LIMIT_BYTES)
    if "[" in endpoint:
        socket.setsockopt(zmq.IPV6, 1)
    return socket


# What the socket's monitor said, in words; of several things the most telling (the highest number) is reported.
_WORDS: dict[int, tuple[int, str]] = {
    zmq.EVENT_CONNECT_RETRIED: (1, "nobody listens there"),
    zmq.EVENT_CONNECTED: (2, "whoever listens there does not shake hands: another program's port?"),
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: (3, "the handshake fails: a wrong controller key, or another program's port"),
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: (3, "the handshake fails: another program's port"),
    zmq.EVENT_HANDSHAKE_SUCCEEDED: (4, "the keys are right but the controller does not greet back"),
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: (5, "the controller does not know this rank's key (a key of another run?)"),
}


def _await(welcomed: threading.Event, monitor: zmq.Socket[bytes], timeout_seconds: float) -> str:
    """Why there is no welcome, "" when there is one."""
    end = time.monotonic() + timeout_seconds
    seen = (0, "no sign of the controller")
    while not welcomed.wait(0.002):
        while monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            seen = max(seen, _WORDS.get(event, seen))
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                return seen[1]
        if time.monotonic() >= end:
            return f"{seen[1]} (tried for {timeout_seconds:g} s)"
    return ""


def _upload(socket: zmq.Socket[bytes], run_id: str, name: str, chunks: Iterable[Bytes]) -> None:
    """Parts of at most PART_BYTES; at most IN_FLIGHT_PARTS of them unanswered."""

    def say(message: protocol.Offer | protocol.Part | protocol.Whole, *beside: bytes | memoryview) -> None:
        socket.send_multipart((protocol.encode(protocol.BulkUp(run_id, message)), *beside))

    digest, sent, received = hashlib.sha256(), 0, 0
    say(protocol.Offer(name=name))
    for part in _parts(chunks):
        digest.update(part)
        say(protocol.Part(), part)
        sent += len(part)
        while sent - received > IN_FLIGHT_PARTS * protocol.PART_BYTES:
            received = _heard(socket, run_id, name)
    say(protocol.Whole(sha256=digest.hexdigest()))
    while _heard(socket, run_id, name) >= 0:
        pass


def _parts(chunks: Iterable[Bytes]) -> Iterator[memoryview]:
    """The same bytes in parts of PART_BYTES: a model has hundreds of small tensors, and a message costs both ends."""
    held = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        while view:
            if not held and len(view) >= protocol.PART_BYTES:
                part, view = view[: protocol.PART_BYTES], view[protocol.PART_BYTES :]
                yield part
                continue
            room = protocol.PART_BYTES - len(held)
            held += view[:room]
            view = view[room:]
            if len(held) == protocol.PART_BYTES:
                yield memoryview(held)
                held = bytearray()
    if held:
        yield memoryview(held)


def _heard(socket: zmq.Socket[bytes], run_id: str, name: str) -> int:
    """Bytes that the controller has; -1 when all is stored."""
    if not socket.poll(int(UPLOAD_SECONDS * 1000)):
        raise FlodlError(f"the upload of {name} stalls: no answer for {UPLOAD_SECONDS:g} s")
    frame = protocol.bulk_down(socket.recv(), run_id)
    if frame is None:
        raise FlodlError(f"the upload of {name} met a malformed answer")
    if isinstance(frame.message, protocol.Credit):
        return frame.message.received
    if frame.message.error:
        raise FlodlError(f"the controller could not store {name}: {frame.message.error}")
    return -1
