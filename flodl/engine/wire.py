"""A ZeroMQ socket that several threads share.

Sending happens in the caller's own thread under a lock: a message goes to ZeroMQ's I/O thread, which needs no GIL,
within microseconds, however busy the other Python threads are. Receiving has a thread of its own. It sleeps on the
socket's file descriptor, which tells edges only: so it always reads until nothing is left, and because a send may
swallow an edge, every send looks whether something has come in and wakes the reader if so.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Sequence

import zmq

__all__ = ["SharedSocket"]

Frames = list[zmq.Frame]


class SharedSocket:
    """Owns `socket` from `start` on. on_frames(frames) runs in the reading thread, one message at a time.

    on_tick runs there too, every `tick_seconds`. Neither may raise; both may send.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        on_frames: Callable[[Frames], None],
        on_tick: Callable[[], None] = lambda: None,
        *,
        tick_seconds: float = 1.0,
    ) -> None:
        self._socket = socket
        self._on_frames = on_frames
        self._on_tick = on_tick
        self._tick_ms = tick_seconds * 1000
        self._lock = threading.Lock()
        self._closed = False
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._read, name="flodl-link", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Hand a message to ZeroMQ. Never blocks.

        Raises zmq.Again where the queue is full or the peer is away, zmq.ZMQError (EHOSTUNREACH) where a ROUTER
        knows no such peer, and zmq.ZMQError (ENOTSOCK) after `close`.
        """
        with self._lock:
            if self._closed:
                raise zmq.ZMQError(zmq.ENOTSOCK)
            self._socket.send_multipart(frames, flags=zmq.DONTWAIT, copy=True)
            if self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:  # type: ignore[operator]
                self._wake()

    def close(self, linger_ms: int = 0) -> None:
        """Stop reading and close the socket. Idempotent; not for the reading thread itself.

        linger_ms: how long ZeroMQ goes on sending what is queued, after this call has returned.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close(linger=linger_ms)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b".")

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._socket.getsockopt(zmq.FD), select.POLLIN)  # type: ignore[arg-type]
        poller.register(self._wake_read, select.POLLIN)
        now = _milliseconds()
        tick_at = now + self._tick_ms
        while not self._closed:
            self._drain()
            now = _milliseconds()
            if now >= tick_at:
                tick_at = now + self._tick_ms
                self._on_tick()
                continue  # the tick may have sent
            for descriptor, _ in poller.poll(max(1.0, tick_at - now)):
                if descriptor == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                try:
                    frames = self._socket.recv_multipart(flags=zmq.DONTWAIT, copy=False)
                except zmq.Again:
                    return
            self._on_frames(frames)


def _milliseconds() -> float:
    return time.monotonic() * 1000
