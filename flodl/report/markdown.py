"""A comparison as Markdown: a row per arm, means over seeds, and what is best. Foreign text means nothing."""

from __future__ import annotations

from collections.abc import Sequence

from flodl.record.text import clean
from flodl.report.arm import own_overrides
from flodl.report.compare import Comparison
from flodl.report.figures import ABSENT, FIGURES
from flodl.report.tables import arm_cells, arm_columns, mean_cells

__all__ = ["comparison_markdown"]

WORDS = ("arm", "overrides", "status", "mode", "eval", "reason", "over seeds", "ended well")  # the others are numbers


def comparison_markdown(comparison: Comparison) -> str:
    """The whole document."""
    lines = [f"# Comparison of {len(comparison.arms)} arms", "", _plain(comparison.conclusion), ""]
    if comparison.shared:
        lines += ["All of them: " + " ".join(_code(text) for text in comparison.shared), ""]
    lines += _arms(comparison)
    if any(group.ended_well > 1 for group in comparison.groups):
        lines += ["", "## Over seeds: mean ± standard deviation", "", *_groups(comparison)]
    if len(comparison.groups) > 1 and comparison.verdicts:
        lines += ["", "## What is best", "", *(f"* {_plain(verdict.said)}" for verdict in comparison.verdicts)]
    if comparison.suggestion is not None:
        typed = " ".join(_code(text) for text in comparison.suggestion.overrides)
        beside, why = _plain(comparison.suggestion.beside), _plain(comparison.suggestion.why)
        lines += ["", f"Try next, beside what {beside} had: {typed} ({why})"]
        for command in comparison.suggestion.commands:
            lines += ["", _code(command)]
    return "\n".join(lines) + "\n"


def _arms(comparison: Comparison) -> list[str]:
    head = ["arm", "overrides", "status", "mode", *arm_columns(comparison), "reason"]
    lines = [_row(head), _sides(head)]
    for arm in comparison.arms:
        own = " ".join(_code(text) for text in own_overrides(arm, comparison.shared))
        reason = "" if arm.status == "done" else _plain(_first_line(arm.reason))
        mode = _plain(arm.mode or ABSENT)
        cells = [_plain(cell) for cell in arm_cells(arm, arm.figures)]
        lines.append(_row([_plain(arm.name), own, arm.status, mode, *cells, reason]))
    return lines


def _groups(comparison: Comparison) -> list[str]:
    titles = [figure.title + (f" {figure.unit}" if figure.unit else "") for figure in FIGURES]
    head = ["over seeds", "ended well", *titles]
    lines = [_row(head), _sides(head)]
    for group in comparison.groups:
        well = f"{group.ended_well} of {len(group.arms)}"
        lines.append(_row([_code(group.name), well, *(_plain(cell) for cell in mean_cells(group))]))
    return lines


def _row(cells: Sequence[str]) -> str:
    """A line of a table. A bar would end its cell, in code too; everywhere else a stroke before it would be seen."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sides(head: Sequence[str]) -> str:
    return _row(["---" if name in WORDS else "---:" for name in head])


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


def _plain(text: str) -> str:
    """Text in which no Markdown means anything."""
    flat = clean(text).replace("\\", "\\\\")
    for mark in "<>*_`[]":
        flat = flat.replace(mark, f"\\{mark}")
    return flat


def _code(text: str) -> str:
    """Foreign text as code: a fence longer than any run of backticks in it."""
    flat = clean(text)
    fence = "`"
    while fence in flat:
        fence += "`"
    inner = f" {flat} " if "`" in flat else flat
    return f"{fence}{inner}{fence}"
