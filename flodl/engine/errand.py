"""The controller's end of one program that an agent runs for it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from flodl.engine.errands import Drop, Give, Order, Ran, Told

__all__ = ["HostErrand"]

GRACE_SECONDS = 2.0


class HostErrand:
    """ports.Errand. `hear` is called by the session, in order; the rest by whoever ran it."""

    def __init__(self, number: int, order: Callable[[Order], None]) -> None:
        self.number = number
        self._order = order
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ran: Ran | None = None

    def hear(self, word: Told | Ran) -> None:
        """What the agent said about it."""
        if isinstance(word, Told):
            self._lines.put(word.line)
        elif self._ran is None:
            self._ran = word
            self._lines.put(None)

    def line(self, timeout_seconds: float) -> str | None:
        """Its next line of output; None when none came in time, or when it has ended and all was read."""
        try:
            line = self._lines.get(timeout=max(0.0, timeout_seconds))
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
        return line

    def give(self, line: str) -> None:
        """One more line to its standard input."""
        self._order(Give(id=self.number, line=line))

    def end(self) -> int | None:
        """Close its input, end it if need be; its exit code, None where that is not known."""
        self._order(Give(id=self.number, line=None))
        if not self._await_end(GRACE_SECONDS):
            self._order(Drop(id=self.number))
            self._await_end(GRACE_SECONDS)
        return None if self._ran is None else self._ran.code

    def errors(self) -> tuple[str, ...]:
        """The last lines that it wrote to its standard error; none before it has ended."""
        return () if self._ran is None else self._ran.errors

    def _await_end(self, seconds: float) -> bool:
        """Lines that come meanwhile are lost."""
        end = time.monotonic() + seconds
        while self._ran is None and (left := end - time.monotonic()) > 0:
            self.line(left)
        return self._ran is not None
