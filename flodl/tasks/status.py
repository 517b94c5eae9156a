"""task=status: what a run does now, or what became of it. For people; json=true for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from flodl.decide.view import View
from flodl.errors import ConfigError, Problem, TaskFindings
from flodl.record.fate import Fate, fate
from flodl.record.folder import RunFolder
from flodl.record.result import Result
from flodl.record.status import StatusNow
from flodl.report.onward import told_onward
from flodl.tasks.which import run_folder, shown, typed

__all__ = ["perform", "switch"]


def perform(given: Mapping[str, Any]) -> None:
    """Print it. Raises TaskFindings where the controller is gone and left no result."""
    as_json = switch("json", given["json"])
    folder = run_folder(given["run"])
    found = fate(folder)
    text = _document(folder, found) if as_json else "\n".join(_lines(folder, found))
    sys.stdout.write(f"{text}\n")
    if found.kind == "ended":
        error = TaskFindings(f"{shown(folder.path)}: its controller ended without a result")
        error.is_told = True
        raise error


def switch(key: str, value: object) -> bool:
    """A task's argument that is true or false. Raises ConfigError for anything else."""
    if isinstance(value, bool):
        return value
    raise ConfigError([Problem(key=key, value=str(value), constraint="must be true or false")])


def _document(folder: RunFolder, found: Fate) -> str:
    content = {"run": str(folder.path), "kind": found.kind, "status": found.status, "result": found.result}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _lines(folder: RunFolder, found: Fate) -> Iterator[str]:
    where = shown(folder.path)
    yield f"run         {where}"
    yield f"state       {_state(found)}"
    if found.result is not None:
        yield from _finished(found.result)
    elif found.status is not None:
        yield from _view(found.status)
    yield f"log         {shown(folder.controller_log_path)}"
    if found.kind == "running":
        yield f"to stop     python -m flodl task=stop {typed('run', where)}"
    further = told_onward(folder, found)
    if further:
        yield f"onward      {further}"


def _state(found: Fate) -> str:
    status = found.status
    if found.result is not None:
        result = found.result
        ending = ", its controller tidies up" if found.is_ending else ""
        return f"{result.status}: {result.reason} (exit code {result.exit_code}){ending}"
    if status is None or status.controller is None:
        return "unknown: nobody has said which process runs it"
    heard = f"last heard of {_ago(status.updated)} ago"
    if found.kind == "running":
        return f"{status.state}: process {status.pid}, {heard}"
    if found.kind == "ended":
        return f"gone: its controller (process {status.pid}) ended without a result, {heard}"
    return f"elsewhere: started on {status.controller.host}, or before this machine was; {heard}"


def _ago(moment: datetime) -> str:
    return _span(max(0.0, (datetime.now(UTC) - moment).total_seconds()))


def _view(status: StatusNow) -> Iterator[str]:
    if status.view is None:
        return
    from flodl.report.bar import Bar  # with it comes rich, which nothing else here needs
    from flodl.report.news import shares_line

    view = msgspec.convert(status.view, View, strict=False)
    yield f"progress    {Bar(time.monotonic).line(view)}"
    if len(view.shares) > 1:
        yield f"shares      {shares_line(view.shares)}"
    if view.dead_ranks or view.restarts:
        yield f"deaths      {_fates(view)}"
    if view.eval:
        yield f"evaluation  {_figures(view.eval)}"


def _fates(view: View) -> str:
    """Who is dead, who of them may come back, and who did."""
    told = [
        f"rank {rank} is {'started again' if rank in view.awaited_ranks else 'dead'}"
        + (f" (restart {view.restarts[rank]})" if rank in view.restarts else "")
        for rank in view.dead_ranks
    ]
    back = [rank for rank in view.restarts if rank not in view.dead_ranks]
    return ", ".join([*told, *(f"rank {rank} is back (restart {view.restarts[rank]})" for rank in back)])


def _finished(result: Result) -> Iterator[str]:
    yield (f"trained     {result.epochs_done} epochs, {result.samples_done} samples, {result.rounds} rounds in "
           f"{_span(result.wall_seconds)}, utilisation {result.utilisation:.2f}")  # fmt: skip
    if result.eval:
        yield f"evaluation  {_figures(result.eval)}"
    if result.checkpoints:
        yield f"kept        {', '.join(result.checkpoints)}"


def _figures(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(found.items()))


def _span(seconds: float) -> str:
    """A stretch of time for people: 0:07, 12:05, 1:02:03."""
    from flodl.report.bar import duration

    return duration(seconds)
