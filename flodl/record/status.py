"""status: what the run is doing now, rewritten every two seconds, for other programs and for people with `cat`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from flodl.errors import FlodlError
from flodl.record.files import write_atomically
from flodl.record.process import ProcessName, this_process

__all__ = ["STATUS_SCHEMA", "StatusFile", "StatusNow", "read_status"]

STATUS_SCHEMA = 1
INTERVAL_SECONDS = 2.0


class StatusNow(msgspec.Struct, frozen=True, kw_only=True):
    """What a status file says.

    state: "starting" or "running" while the controller lives, else how the run ended. controller: which process that
    is, so that a reader can tell whether it still lives; pid is its number once more. updated: UTC. view: the
    Coordinator's own, None before it has one.
    """

    schema: int = STATUS_SCHEMA
    run_id: str
    pid: int
    state: str
    updated: datetime
    view: dict[str, Any] | None = None
    controller: ProcessName | None = None


class StatusFile:
    """Keeps the status file fresh. `clock` is a monotonic clock in seconds. What it holds: `StatusNow`."""

    def __init__(self, path: Path, run_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._run_id = run_id
        self._clock = clock
        self._due = clock()
        self._controller = this_process()

    def due(self) -> bool:
        """Whether the file is two seconds old. Cheap: ask before the view is made."""
        return self._clock() >= self._due

    def keep(self, view: Callable[[], object]) -> None:
        """Rewrite the file if it is due; to be called often. view is only asked for then."""
        if self.due():
            self.write(view())

    def begin(self) -> None:
        """The first word of a run: its controller lives, and has nothing to tell yet."""
        self.write(None, state="starting")
        self._due = self._clock()

    @contextmanager
    def refreshed(self) -> Generator[None]:
        """Keep the file fresh where the controller waits for others and calls nothing often: while hosts are met."""
        is_over = threading.Event()

        def work() -> None:
            while not is_over.wait(max(0.0, self._due - self._clock())):
                with suppress(OSError):  # a full disk is told by whoever writes next
                    self.write(None, state="starting")

        thread = threading.Thread(target=work, daemon=True, name="status")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def write(self, view: object, *, state: str = "running") -> None:
        """Rewrite the file, due or not. view: a plain struct or dataclass."""
        self._due = self._clock() + INTERVAL_SECONDS
        content: dict[str, Any] = {
            "schema": STATUS_SCHEMA,
            "run_id": self._run_id,
            "pid": self._controller.pid,
            "controller": self._controller,
            "state": state,
            "updated": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "view": view,
        }
        write_atomically(self._path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def read_status(path: Path) -> StatusNow:
    """What the run does now, or did when it was last heard of. FlodlError where the file cannot be understood."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=StatusNow)
    except msgspec.MsgspecError as error:
        raise FlodlError(f"{path}: {error}") from error
    if found.schema != STATUS_SCHEMA:
        raise FlodlError(f"{path}: status schema {found.schema}; this flodl reads {STATUS_SCHEMA}")
    return found
