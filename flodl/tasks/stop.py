"""task=stop: ask the controller of a run, and nobody else, to end it, and say what became of it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from flodl.errors import ConfigError, Problem, TaskFindings
from flodl.record.fate import Fate, fate
from flodl.record.folder import RunFolder
from flodl.record.process import ProcessName, lives, send
from flodl.report.onward import told_onward
from flodl.tasks.which import run_folder, shown, typed

__all__ = ["end_it", "perform"]

LOOK_SECONDS = 0.1


def perform(given: Mapping[str, Any]) -> None:
    """A first SIGTERM ends a run at its next averaging, a second one at once. Raises TaskFindings where it lives on."""
    seconds = _seconds(given["wait_seconds"])
    folder = run_folder(given["run"])
    found = fate(folder)
    if found.kind == "running" and found.status is not None and found.status.controller is not None:
        words = end_it(folder, found.status.controller, seconds)
        found = fate(folder)
    else:
        words, is_settled = _not_running(folder, found)
        if not is_settled:
            raise TaskFindings(f"{shown(folder.path)}: {words}")
    _say(folder, words + _onward(folder, found))


def end_it(folder: RunFolder, controller: ProcessName, seconds: float) -> str:
    """Signal it and wait. Returns what became of the run."""
    where = shown(folder.path)
    try:
        is_sent = send(controller, signal.SIGTERM)
    except PermissionError as error:
        raise TaskFindings(f"{where}: its controller (process {controller.pid}) belongs to another user; "
                           "stop it as that one") from error  # fmt: skip
    if is_sent:
        sys.stdout.write(f"{where}: asked its controller (process {controller.pid}) to stop\n")
        sys.stdout.flush()
    end = time.monotonic() + seconds
    while lives(controller):
        if time.monotonic() >= end:
            again = f"python -m flodl task=stop {typed('run', where)}"
            raise TaskFindings(f"{where}: still runs {seconds:g} s after it was asked to stop; it ends when the ranks "
                               f"have finished their round; to end it at once: {again}")  # fmt: skip
        time.sleep(LOOK_SECONDS)
    return _became(folder, fate(folder))


def _became(folder: RunFolder, found: Fate) -> str:
    if found.result is None:
        raise TaskFindings(f"{shown(folder.path)}: its controller ended and left no result; the last of what it said "
                           f"is in {shown(folder.controller_log_path)}{_onward(folder, found)}")  # fmt: skip
    result = found.result
    kept = f"; kept {', '.join(result.checkpoints)}" if result.checkpoints else "; nothing was saved"
    return f"{result.status} after {result.rounds} rounds ({result.reason}), exit code {result.exit_code}{kept}"


def _onward(folder: RunFolder, found: Fate) -> str:
    """A line more, where there is a way on."""
    further = told_onward(folder, found)
    return f"\n{further}" if further else ""


def _not_running(folder: RunFolder, found: Fate) -> tuple[str, bool]:
    """(words, whether nothing is left to stop)."""
    if found.result is not None:
        return f"nothing to stop: {_became(folder, found)}", True
    status = found.status
    if status is None or status.controller is None:
        return "nobody has said which process runs it: it has only just begun, or it is no run of task=train", False
    at = f"{status.updated.astimezone():%Y-%m-%d %H:%M:%S}"
    if found.kind == "ended":
        return (f"nothing to stop: its controller (process {status.pid}) ended without a result, last heard of at "
                f"{at}; see {shown(folder.controller_log_path)}"), True  # fmt: skip
    return (f"was started on {status.controller.host}, or before this machine was, and last heard of at {at}; "
            "stop it there"), False  # fmt: skip


def _say(folder: RunFolder, text: str) -> None:
    sys.stdout.write(f"{shown(folder.path)}: {text}\n")


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    raise ConfigError([Problem(key="wait_seconds", value=str(value), constraint="must be a number of seconds >= 0",
                               remedy="leave it out for a minute")])  # fmt: skip
