"""Figures that are told to functions of the program: in order, on a thread of their own.

A function that is slow holds up no rank. One that raises is not called again: the run ends in order, saved, and `join`
raises what it raised.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Telling"]

POLL_SECONDS = 0.05


class Telling:
    """One run's. on_error: is told, once, the name of the function that raised, and what."""

    def __init__(self, on_error: Callable[[str, BaseException], None]) -> None:
        self._on_error = on_error
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None

    @property
    def is_here(self) -> bool:
        """Whether this is asked by such a function."""
        return threading.current_thread() is self._thread

    def tell(self, name: str, function: Callable[..., object], *given: Any) -> None:
        """Call it as soon as those before it have returned."""

        def call() -> None:
            try:
                function(*given)
            except BaseException as error:  # noqa: BLE001  raised again by `join`
                self.error = error
                self._on_error(name, error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="flodl-telling", daemon=True)
            self._thread.start()
        self._calls.put(call)

    def end(self, is_hurried: Callable[[], bool]) -> None:
        """Wait until all is told; in a hurry, not even for the one that is being told."""
        if self._thread is not None:
            self._calls.put(None)
            while self._thread.is_alive() and not is_hurried():
                self._thread.join(POLL_SECONDS)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self.error is None:
                call()
