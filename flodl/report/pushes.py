"""How far pushes to hosts are, as lines for a person: a terminal is told of each step, a log of what took long or came.

A push that sends nothing has nothing to tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from flodl.ports import PushProgress

__all__ = ["PushTeller"]

STEP_PERCENT = 10
QUIET_SECONDS = 10.0  # off a terminal, between two lines about one push
ALL = 100


class PushTeller:
    """Hears of all pushes, from several threads. is_live: somebody looks on."""

    def __init__(self, say: Callable[[str], None], *, is_live: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._is_live = is_live
        self._now = now
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], tuple[int, float]] = {}  # (host, what) -> percent and time of its last line

    def tell(self, progress: PushProgress) -> None:
        """One state of one push."""
        with self._lock:
            key = progress.host, progress.what
            percent, since = self._told.setdefault(key, (0, self._now()))
            if progress.sent_bytes == 0 or percent == ALL or not self._is_due(progress.percent, percent, since):
                return
            self._told[key] = (progress.percent, self._now())
            left = "" if progress.percent == ALL else f", {progress.left_seconds} s left"
            sent = f"{progress.sent_bytes / 1e6:,.1f} MB, {progress.percent}%"
            self._say(f"{progress.host}: {progress.what}: {sent} at {progress.rate}{left}")

    def _is_due(self, percent: int, told: int, since: float) -> bool:
        if percent == ALL:
            return True
        if self._is_live:
            return percent // STEP_PERCENT > told // STEP_PERCENT
        return self._now() - since >= QUIET_SECONDS
