"""status: what the run is doing now, rewritten every two seconds, for other programs and for people with `cat`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from flodl.record.files import write_atomically

__all__ = ["STATUS_SCHEMA", "StatusFile"]

STATUS_SCHEMA = 1
INTERVAL_SECONDS = 2.0


class StatusFile:
    """Keeps the status file fresh. `clock` is a monotonic clock in seconds.

    The file: {schema, run_id, pid, state, updated, view}; view is the Coordinator's own, state is "running" or the
    status that the run ended with. pid is the controller's: a reader that finds it gone reads a stale file.
    """

    def __init__(self, path: Path, run_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._run_id = run_id
        self._clock = clock
        self._due = clock()

    def due(self) -> bool:
        """Whether the file is two seconds old. Cheap: ask before the view is made."""
        return self._clock() >= self._due

    def keep(self, view: Callable[[], object]) -> None:
        """Rewrite the file if it is due; to be called often. view is only asked for then."""
        if self.due():
            self.write(view())

    def write(self, view: object, *, state: str = "running") -> None:
        """Rewrite the file, due or not. view: a plain struct or dataclass."""
        self._due = self._clock() + INTERVAL_SECONDS
        content: dict[str, Any] = {
            "schema": STATUS_SCHEMA,
            "run_id": self._run_id,
            "pid": os.getpid(),
            "state": state,
            "updated": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "view": view,
        }
        write_atomically(self._path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
