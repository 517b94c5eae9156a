"""What became of a run: read from its folder and from the process table, without asking anybody."""

from __future__ import annotations

import contextlib
from typing import Literal

import msgspec

from flodl.errors import FlodlError
from flodl.record.folder import RunFolder
from flodl.record.process import is_known_here, lives
from flodl.record.result import Result, read_result
from flodl.record.status import StatusNow, read_status
from flodl.spec.codec import load_spec

__all__ = ["Fate", "fate", "tidy"]


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """kind: finished (there is a result) | running | ended (its controller is gone and left no result) | elsewhere
    (another machine, or another boot of this one, holds or held its controller) | silent (nobody has said whose it is).

    is_ending: it is finished, and its controller still tidies up.
    """

    kind: Literal["finished", "running", "ended", "elsewhere", "silent"]
    status: StatusNow | None = None
    result: Result | None = None
    is_ending: bool = False


def fate(folder: RunFolder) -> Fate:
    """What became of the run in `folder`. FlodlError where a file of it cannot be understood."""
    status = read_status(folder.status_path) if folder.status_path.exists() else None
    controller = None if status is None else status.controller
    is_alive = controller is not None and lives(controller)
    if folder.result_path.exists():
        return Fate(kind="finished", status=status, result=read_result(folder.result_path), is_ending=is_alive)
    if controller is None:
        return Fate(kind="silent", status=status)
    if is_alive:
        return Fate(kind="running", status=status)
    return Fate(kind="ended" if is_known_here(controller) else "elsewhere", status=status)


def tidy(folder: RunFolder) -> None:
    """Remove what a run whose controller is gone left half written, and let its weights be those of its newest bundle;
    where another one might write, nothing."""
    with contextlib.suppress(FlodlError, OSError):
        controller = read_status(folder.status_path).controller
        if controller is not None and is_known_here(controller) and not lives(controller):
            folder.tidy()
            folder.bundles(load_spec(folder.spec_path).checkpoint).mend()
