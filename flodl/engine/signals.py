"""What a signal means to a controller: the first asks for an orderly end, the second ends everything now."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Protocol, Self

from flodl.decide.messages import StopStatus

__all__ = ["SignalWatch", "Stoppable"]

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """Whom the signals are for; both calls are safe in a handler. A stop that no signal asked for ends as `stopped`."""

    def request_stop(self, reason: str, status: StopStatus = "interrupted") -> None: ...

    def hurry(self, reason: str) -> None: ...


class SignalWatch:
    """A context manager. Handlers are installed even where SIGINT was ignored (a controller started with &).

    A SIGHUP that was ignored (nohup) stays ignored. Outside the main thread nothing is installed: Python allows
    handlers there only.
    """

    def __init__(self, whom: Stoppable) -> None:
        self._whom = whom
        self._seen = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in WATCHED:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        name = signal.Signals(number).name
        if self._seen == 1:
            self._whom.request_stop(name)
        else:
            self._whom.hurry(f"second signal ({name})")
