"""Arms side by side: one value per arm, as JSON for tools, as Markdown for a file, as tables for a terminal.

loss is the last epoch's training loss; every other figure is the result's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flodl.record.result import Result, Status
from flodl.record.text import clean
from flodl.report.summary import STYLES

__all__ = [
    "COMPARISON_SCHEMA",
    "Arm",
    "comparison_json",
    "comparison_markdown",
    "comparison_table",
    "failure_table",
    "print_comparison",
    "shared_overrides",
]

COMPARISON_SCHEMA = 1
UNSUCCESSFUL = ("failed", "interrupted", "skipped")


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One arm of a sweep, or one run of several that are compared.

    name: how it is called in its sweep. overrides: what was typed or swept for it. folder: where its run lies,
    relative to the sweep's folder where it is inside. attempts: how often it was begun; 0: never. result: None where
    it left none.
    """

    name: str
    overrides: tuple[str, ...] = ()
    status: Status | Literal["skipped"]
    reason: str = ""
    attempts: int = 1
    folder: str = ""
    result: Result | None = None


class _Document(msgspec.Struct, kw_only=True):
    schema: int = COMPARISON_SCHEMA
    arms: tuple[Arm, ...]


class _Column(msgspec.Struct, frozen=True):
    name: str
    cell: Callable[[Result], str]


COLUMNS = (
    _Column("mode", lambda result: result.mode),
    _Column("loss", lambda result: "" if result.train_loss is None else f"{result.train_loss:.4g}"),
    _Column("eval", lambda result: ", ".join(f"{name} {value:.4g}" for name, value in sorted(result.eval.items()))),
    _Column("samples/s", lambda result: f"{result.samples_per_second:,.0f}"),
    _Column("wall s", lambda result: f"{result.wall_seconds:,.1f}"),
    _Column("utilisation", lambda result: f"{result.utilisation:.3f}"),
    _Column("rounds", lambda result: f"{result.rounds:,}"),
    _Column("anchor", lambda result: f"{result.anchor}"),
)
WORDS = ("mode", "eval")  # columns of text, the others are numbers


def comparison_json(arms: Sequence[Arm]) -> bytes:
    """{schema, arms: [{name, overrides, status, reason, attempts, folder, result}]}, result as in result.json."""
    return msgspec.json.format(msgspec.json.encode(_Document(arms=tuple(arms))), indent=2) + b"\n"


def comparison_markdown(arms: Sequence[Arm]) -> str:
    """A table with a row per arm, and above it what all of them share."""
    shared = shared_overrides(arms)
    head = ["arm", "overrides", "status", *(column.name for column in COLUMNS), "reason"]
    sides = ["---" if name in ("arm", "overrides", "status", "reason", *WORDS) else "---:" for name in head]
    lines = [f"# Comparison of {len(arms)} arms", ""]
    if shared:
        lines += ["All of them: " + " ".join(_code(text) for text in shared), ""]
    lines += [_row(head), _row(sides)]
    for arm in arms:
        own = " ".join(_code(text) for text in arm.overrides if text not in shared)
        reason = "" if arm.status == "done" else _plain(_first_line(arm.reason))
        lines.append(_row([_plain(arm.name), own, arm.status, *(_plain(cell) for cell in _figures(arm)), reason]))
    return "\n".join(lines) + "\n"


def comparison_table(arms: Sequence[Arm], padding: int = 2) -> Table:
    """The same for a terminal, without the reasons."""
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for name in ("arm", "overrides", "status"):
        table.add_column(name, overflow="fold")
    for column in COLUMNS:
        table.add_column(column.name, justify="left" if column.name in WORDS else "right", overflow="fold")
    shared = shared_overrides(arms)
    for arm in arms:
        own = " ".join(clean(text) for text in arm.overrides if text not in shared)
        status = Text(arm.status, style=STYLES.get(arm.status, "dim" if arm.status == "skipped" else "bold red"))
        table.add_row(Text(arm.name), Text(own), status, *(Text(cell) for cell in _figures(arm)))
    return table


def failure_table(arms: Sequence[Arm], padding: int = 2) -> Table | None:
    """Why arms failed, were interrupted or skipped; None where none was."""
    missed = [arm for arm in arms if arm.status in UNSUCCESSFUL]
    if not missed:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for name in ("arm", "status", "tries", "reason"):
        table.add_column(name, overflow="fold")
    for arm in missed:
        reason = "\n".join(clean(line) for line in arm.reason.splitlines())
        style = "dim" if arm.status == "skipped" else "bold red"
        table.add_row(Text(arm.name), Text(arm.status, style=style), Text(f"{arm.attempts}"), Text(reason))
    return table


def print_comparison(arms: Sequence[Arm], console: Console) -> None:
    """The table, and below it why arms are missing."""
    padding = 2 if console.width >= 120 else 1
    console.print()
    shared = shared_overrides(arms)
    if shared:
        console.print(Text("all arms: " + " ".join(clean(text) for text in shared)), soft_wrap=True)
    console.print(comparison_table(arms, padding))
    failures = failure_table(arms, padding)
    if failures is not None:
        console.print()
        console.print(failures)


def shared_overrides(arms: Sequence[Arm]) -> tuple[str, ...]:
    """What every arm was given; nothing where there is one arm only, for that is all that names it."""
    if len(arms) < 2:
        return ()
    return tuple(text for text in arms[0].overrides if all(text in arm.overrides for arm in arms[1:]))


def _figures(arm: Arm) -> list[str]:
    """The cells of an arm; a run that trained nothing has a mode and no figures."""
    found = arm.result
    if found is None:
        return [""] * len(COLUMNS)
    trained = found.samples_done > 0
    return [column.cell(found) if trained or column.name == "mode" else "" for column in COLUMNS]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _plain(text: str) -> str:
    """Text of a cell: no Markdown in it means anything."""
    flat = clean(text).replace("\\", "\\\\")
    for mark in "|<>*_`[]":
        flat = flat.replace(mark, f"\\{mark}")
    return flat


def _code(text: str) -> str:
    """Foreign text as code. A fence longer than any run of backticks in it; a bar would end the table's cell."""
    flat = clean(text).replace("|", "\\|")
    fence = "`"
    while fence in flat:
        fence += "`"
    inner = f" {flat} " if "`" in flat else flat
    return f"{fence}{inner}{fence}"
