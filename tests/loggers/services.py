"""Loggers of the user's own, for the desk: what they heard is kept on the class."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from flodl.ports import LoggedRun, LoggedSweep

__all__ = ["Failing", "Hanging", "Lacking", "Listening"]


class Listening:
    """Keeps every call, with the thread that it came from."""

    heard: ClassVar[list[tuple[str, Any]]] = []
    threads: ClassVar[set[int]] = set()

    def __init__(self, *, note: str = "") -> None:
        self.note = note

    def begin(self, run: LoggedRun) -> None:
        self._keep("begin", run)

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        self._keep("log", (step, dict(figures)))

    def end(self, status: str, figures: Mapping[str, float]) -> None:
        self._keep("end", (status, dict(figures)))

    def compare(self, sweep: LoggedSweep) -> None:
        self._keep("compare", sweep)

    def _keep(self, kind: str, what: object) -> None:
        type(self).heard.append((kind, what))
        type(self).threads.add(threading.get_ident())


class Failing(Listening):
    """Its service refuses everything."""

    heard: ClassVar[list[tuple[str, Any]]] = []

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        self._keep("log", step)
        raise ConnectionError("[red]the service is gone[/red]\nand more")


class Hanging(Listening):
    """Its service does not answer until it is let."""

    heard: ClassVar[list[tuple[str, Any]]] = []
    let: ClassVar[threading.Event] = threading.Event()

    def log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        self.let.wait()


class Lacking(Listening):
    """Its package is not there."""

    requires = ("a_package_that_nobody_has",)
    extra = "services"
