"""Signals of a program that has runs under way mean what they mean to the command line: first in order, then at once.

Only what nobody has claimed is taken over, on the main thread alone, and each run that is under way hears it; when none
is, signals are the program's again.
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
    """One run's. `begin` when it begins and whenever it is waited for: a notebook sets handlers of its own before and
    after each cell. `end` when it was waited for. Off the main thread neither changes a handler."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._seen = 0

    def begin(self) -> None:
        """Take over what is unclaimed."""
        with _lock:
            _under_way[:] = [*_others(self), self]
        if threading.current_thread() is threading.main_thread():
            for number, usual in _UNCLAIMED.items():
                if signal.getsignal(number) is usual:
                    signal.signal(number, _hear)

    def end(self) -> None:
        """Give back what is still ours, where no other run is under way. Idempotent."""
        with _lock:
            _under_way[:] = _others(self)
        if not _under_way:
            _give_back()

    @property
    def is_over(self) -> bool:
        """Whether there is nobody to hear anything."""
        return self._run.is_over

    def hear(self, name: str) -> None:
        """A signal of this name came."""
        self._seen += 1
        if self._seen == 1:
            self._run.interrupt(name)
        else:
            self._run.hurry(f"second signal ({name})")


_under_way: list[ProgramSignals] = []
_lock = threading.Lock()  # runs may begin in several threads; a handler takes it never


def _others(mine: ProgramSignals) -> list[ProgramSignals]:
    return [other for other in _under_way if other is not mine and not other.is_over]


def _give_back() -> None:
    if threading.current_thread() is threading.main_thread():
        for number, usual in _UNCLAIMED.items():
            if signal.getsignal(number) is _hear:
                signal.signal(number, usual)


def _hear(number: int, frame: FrameType | None) -> None:
    concerned = [run for run in _under_way if not run.is_over]
    for run in concerned:
        run.hear(signal.Signals(number).name)
    if not concerned:
        _give_back()
        signal.raise_signal(number)
