"""How many logins are under way at once, and when a dropped one is tried again.

An sshd drops logins at random when many have not got in yet (MaxStartups). So no more than eight are under way, and a
server that drops one gets fewer at a time: half as many after each drop, one more after a round without.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["DroppedError", "Gate", "gate_of", "persist"]

AT_ONCE = 8
TRIES = 5
BACK_OFF_SECONDS = 0.5

Result = TypeVar("Result")


class DroppedError(Exception):
    """The server has ended a login before it began: worth another try."""


class Gate:
    """Logins to one server. `limit` moves between one and `most`."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self.limit = most
        self._most = most
        self._active = 0
        self._clean = 0  # logins since the last drop or rise
        self._changed = threading.Condition()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """One login. A DroppedError that passes through narrows the gate."""
        with self._changed:
            self._changed.wait_for(lambda: self._active < self.limit)
            self._active += 1
        try:
            yield
        except DroppedError:
            self._leave(dropped=True)
            raise
        except BaseException:
            self._leave(dropped=False)
            raise
        self._leave(dropped=False)

    def _leave(self, *, dropped: bool) -> None:
        with self._changed:
            self._active -= 1
            self._clean = 0 if dropped else self._clean + 1
            if dropped:
                self.limit = max(1, self.limit // 2)
            elif self._clean >= self.limit < self._most:
                self.limit, self._clean = self.limit + 1, 0
            self._changed.notify_all()


_all_logins = threading.BoundedSemaphore(AT_ONCE)
_gates: dict[tuple[str, int], Gate] = {}
_gates_lock = threading.Lock()


def gate_of(host: str, port: int) -> Gate:
    """The gate of one server, the same for all threads of this process."""
    with _gates_lock:
        return _gates.setdefault((host, port), Gate())


def persist(gate: Gate, attempt: Callable[[], Result], tries: int = TRIES) -> Result:
    """The attempt's result. One that is dropped is made again after a jittered, doubling pause; the last raises."""
    for number in range(tries):
        try:
            with gate.slot(), _all_logins:
                return attempt()
        except DroppedError:
            if number == tries - 1:
                raise
            time.sleep(BACK_OFF_SECONDS * 2**number * random.uniform(0.5, 1.5))
    raise AssertionError("unreachable: the last try returns or raises")
