"""A program of the user's that has asked for a run: what it brings along, and what it wants to hold in its hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flodl.engine.fleet import OpenStreams
from flodl.engine.signals import Stoppable

__all__ = ["Caller"]


def _nobody(world: Stoppable) -> None:
    """Whoever types a command has signals for it."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """open_agent: how an agent comes about on this machine; None: as a subprocess. on_world: is handed what can be
    stopped, once there is something."""

    open_agent: OpenStreams | None = None
    on_world: Callable[[Stoppable], None] = _nobody
