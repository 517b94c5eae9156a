"""The agent's one loop: descriptors that are watched, and the lines that come out of them. One thread, no locks."""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable

from flodl.engine.errands import LineSplitter

__all__ = ["Output", "Watch"]

READ_BYTES = 65536
DRAIN_READS = 64


class Watch:
    """Calls back whoever waits for a descriptor."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def turn(self, limit_seconds: float | None) -> None:
        """Wait for something, at most so long, and call those for whom it came."""
        for key, _ in self._selector.select(limit_seconds):
            if key.fd in self._selector.get_map():  # an earlier one of this turn may have closed it
                key.data()

    def reading(self, fd: int, then: Callable[[], object]) -> None:
        """Call `then` whenever there is something to read."""
        self._selector.register(fd, selectors.EVENT_READ, then)

    def writing(self, fd: int, then: Callable[[], object]) -> None:
        """Call `then` whenever there is room to write."""
        self._selector.register(fd, selectors.EVENT_WRITE, then)

    def forget(self, fd: int) -> None:
        """Call nobody for it any more. Idempotent."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)


class Output:
    """One stream of one process, passed on line by line. Owns the descriptor."""

    def __init__(self, watch: Watch, fd: int, on_line: Callable[[str], None], line_bytes: int) -> None:
        os.set_blocking(fd, False)
        self._watch = watch
        self._fd = fd
        self._on_line = on_line
        self._splitter = LineSplitter(line_bytes)
        watch.reading(fd, self.read)

    def read(self) -> bool:
        """Pass on what is there; False where nothing is."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return False
        self._pass(self._splitter.feed(data) if data else self._splitter.rest())
        if not data:
            self._watch.forget(self._fd)
        return bool(data)

    def close(self) -> None:
        """Pass on everything that is there, and no more; a last line without its newline counts."""
        self.drain()
        self._pass(self._splitter.rest())
        self._watch.forget(self._fd)
        os.close(self._fd)

    def drain(self) -> None:
        """Pass on everything that is there."""
        for _ in range(DRAIN_READS):  # bounded: what a process has set loose may go on writing
            if not self.read():
                return

    def _pass(self, lines: list[bytes]) -> None:
        for line in lines:
            self._on_line(line.decode("utf-8", errors="backslashreplace"))
