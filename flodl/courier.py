"""One logger's thread: calls in order, never on the run's own path. The first one that raises is the last one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, Queue

from flodl.ports import Logger

__all__ = ["Courier"]

MOST_WAITING = 10_000

Call = Callable[[Logger], None]


class Courier:
    """Carries calls to `logger`. trouble: once, what went wrong, in words."""

    def __init__(self, name: str, logger: Logger) -> None:
        self.name = name
        self._logger = logger
        self._calls: Queue[Call | None] = Queue()
        self._troubles: Queue[str] = Queue()
        self._is_lost = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"flodl-logger-{name}", daemon=True)

    def post(self, call: Call) -> None:
        """Have `call` made when it is its turn. Returns at once."""
        if self._is_lost.is_set():
            return
        if self._thread.ident is None:
            self._thread.start()
        if self._calls.qsize() >= MOST_WAITING:
            self._lose(f"is {MOST_WAITING} calls behind")
        else:
            self._calls.put(call)

    def trouble(self) -> str | None:
        """What went wrong since the last question."""
        try:
            return self._troubles.get_nowait()
        except Empty:
            return None

    def close(self) -> None:
        """No more calls after those that wait."""
        if self._thread.ident is not None:
            self._calls.put(None)

    def wait(self, until: float) -> bool:
        """Wait until that moment (time.monotonic()) for all calls to be made; whether there is nothing to wait for."""
        if self._thread.ident is not None and not self._is_lost.is_set():
            self._thread.join(max(0.0, until - time.monotonic()))
        return self._is_lost.is_set() or not self._thread.is_alive()

    def leave(self, until: float) -> None:
        """Wait, and leave to itself what hangs."""
        if not self.wait(until):
            self._lose("has not ended in time")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None and not self._is_lost.is_set():
            try:
                call(self._logger)
            except BaseException as error:  # noqa: BLE001 - a service's own package may raise anything, SystemExit too
                self._lose(f"failed: {type(error).__name__}: {_first_line(error)}")
                return

    def _lose(self, why: str) -> None:
        if not self._is_lost.is_set():
            self._is_lost.set()
            self._troubles.put(f"warning: logger {self.name} {why}; the run goes on without it")


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")
