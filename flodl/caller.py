"""Whoever has asked for a run (a program of the user's, a sweep): what they bring along, and want to hold and hear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flodl.engine.fleet import OpenStreams
from flodl.engine.signals import Stoppable

__all__ = ["Caller"]


def _nobody(world: Stoppable) -> None:
    """Whoever types a command has signals for it."""


def _nothing() -> None:
    """An only run is over, and with it the command."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """open_agent: how an agent comes about on this machine; None: as a subprocess. on_world: is handed what can be
    stopped, once there is something. on_late_signal: is called where a signal came when the run was over: too late for
    it, but not for what was to come after it."""

    open_agent: OpenStreams | None = None
    on_world: Callable[[Stoppable], None] = _nobody
    on_late_signal: Callable[[], None] = _nothing
