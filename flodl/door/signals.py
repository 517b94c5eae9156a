"""Signals of a program that has a run under way mean what they mean to the command line: first in order, then at once.

Only what nobody has claimed is taken over, on the main thread alone; when the run is over, signals are the program's
again.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Protocol

__all__ = ["ProgramSignals"]

_UNCLAIMED: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class _Run(Protocol):
    @property
    def is_over(self) -> bool: ...

    def interrupt(self, reason: str) -> None: ...

    def hurry(self, reason: str) -> None: ...


class ProgramSignals:
    """One run's. `begin` when it begins, `end` when it was waited for; both do nothing off the main thread."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._seen = 0
        self._taken: list[signal.Signals] = []

    def begin(self) -> None:
        """Take over what is unclaimed."""
        if threading.current_thread() is threading.main_thread():
            self._taken = [number for number, usual in _UNCLAIMED.items() if signal.getsignal(number) is usual]
            for number in self._taken:
                signal.signal(number, self._hear)

    def end(self) -> None:
        """Give back what is still ours. Idempotent."""
        if threading.current_thread() is threading.main_thread():
            for number in self._taken:
                if signal.getsignal(number) == self._hear:
                    signal.signal(number, _UNCLAIMED[number])
            self._taken = []

    def _hear(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._run.is_over:
            self.end()
            signal.raise_signal(number)
            return
        self._seen += 1
        if self._seen == 1:
            self._run.interrupt(name)
        else:
            self._run.hurry(f"second signal ({name})")
