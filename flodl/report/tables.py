"""A comparison on the terminal: a row per arm, means over seeds where there are several, what is best, what failed.

Foreign text is cleaned and printed as it is, without markup.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flodl.record.text import clean
from flodl.report.arm import Arm, own_overrides
from flodl.report.compare import Comparison
from flodl.report.compared import Group
from flodl.report.figures import ABSENT, FIGURES, Figure, shown
from flodl.report.summary import STYLES

__all__ = ["WIDE_ENOUGH", "arm_cells", "arm_columns", "failures", "mean_cells", "print_comparison"]

WIDE_ENOUGH = 120  # columns, for two blanks between cells
LONGEST_OWN = 30  # letters of an override that is not torn there
SHOWN = {"loss_at_epoch", "metric_at_end", "seconds_to_target", "loss_per_second", "wall_seconds", "samples_per_second",
         "utilisation", "rounds", "anchor"}  # fmt: skip


def print_comparison(comparison: Comparison, console: Console, only: Collection[str] | None = None) -> None:
    """only: names of the arms that have a row; None: all."""
    arms = [arm for arm in comparison.arms if only is None or arm.name in only]
    padding = 2 if console.width >= WIDE_ENOUGH else 1
    console.print()
    if comparison.shared:
        console.print(Text("all arms: " + " ".join(clean(text) for text in comparison.shared)), soft_wrap=True)
    console.print(_arm_table(comparison, arms, padding))
    if any(group.ended_well > 1 for group in comparison.groups):
        console.print()
        console.print(_group_table(comparison.groups, padding))
    missed = failures(arms)
    if missed:
        console.print()
        console.print(_failure_table(missed, padding))
    _print_words(comparison, console)


def arm_columns(comparison: Comparison, figures: Sequence[Figure] = FIGURES) -> list[str]:
    """The titles of figures, with the epoch and the metric that they are of."""
    at = f" at epoch {comparison.epoch}" if comparison.epoch else ""
    own = {
        "loss_at_epoch": f"train loss{at}",
        "metric_at_epoch": f"eval {comparison.metric}{at}",
        "metric_at_end": "eval",
        "samples_per_second": "samples/s",
        "wall_seconds": "wall s",
        "seconds_per_epoch": "s/epoch",
        "seconds_to_target": "s to target",
        "loss_per_second": "loss/s",
        "anchor": "anchor",
        "divergence": "divergence",
    }
    return [own.get(figure.name, figure.title) for figure in figures]


def arm_cells(arm: Arm, figures: object, wanted: Sequence[Figure] = FIGURES) -> list[str]:
    """An arm's figures as text. `eval`: all figures of its last evaluation."""
    found = arm.result if arm.has_trained else None
    cells = [shown(getattr(figures, figure.name, None), figure) for figure in wanted]
    evaluated = "" if found is None else ", ".join(f"{name} {value:.4g}" for name, value in sorted(found.eval.items()))
    return [evaluated or ABSENT if figure.name == "metric_at_end" else cell
            for figure, cell in zip(wanted, cells, strict=True)]  # fmt: skip


def mean_cells(group: Group, wanted: Sequence[Figure] = FIGURES) -> list[str]:
    """A group's means, each with its spread: 0.213 ± 0.029."""
    cells: list[str] = []
    for figure in wanted:
        found = group.figures.get(figure.name)
        spread = "" if found is None or found.spread is None else f" ± {shown(found.spread, _rough(figure))}"
        cells.append(ABSENT if found is None else shown(found.mean, figure) + spread)
    return cells


def failures(arms: Sequence[Arm]) -> list[Arm]:
    """Those that failed, were interrupted or skipped, or have not ended yet."""
    return [arm for arm in arms if arm.status in ("failed", "interrupted", "skipped", "running")]


def _rough(figure: Figure) -> Figure:
    """A spread has two digits; that of a count may be a fraction."""
    return figure if figure.unit == "%" else Figure(figure.name, figure.title, digits=2)


def _style(arm: Arm) -> str:
    return STYLES.get(arm.status, "dim" if arm.status in ("skipped", "running") else "bold red")


def _arm_table(comparison: Comparison, arms: Sequence[Arm], padding: int) -> Table:
    wanted = [figure for figure in FIGURES if figure.name in SHOWN]
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    own = [clean(text) for arm in arms for text in own_overrides(arm, comparison.shared)]
    longest = max(map(len, own), default=0) if padding > 1 else 0  # a text is seldom torn where there is room
    for name in ("arm", "overrides", "status", "mode"):
        table.add_column(name, overflow="fold", min_width=min(longest, LONGEST_OWN) if name == "overrides" else None)
    for title in arm_columns(comparison, wanted):
        table.add_column(title, justify="left" if title == "eval" else "right", overflow="fold")
    figures = {arm.name: arm.figures for arm in comparison.arms}
    for arm in arms:
        texts = " ".join(clean(text) for text in own_overrides(arm, comparison.shared))
        style = _style(arm)
        cells = arm_cells(arm, figures[arm.name], wanted)
        table.add_row(
            Text(arm.name), Text(texts), Text(arm.status, style=style), Text(arm.mode or ABSENT), *map(Text, cells)
        )
    return table


def _group_table(groups: Sequence[Group], padding: int) -> Table:
    wanted = [f for f in FIGURES if f.name in ("loss_at_epoch", "metric_at_end", "seconds_to_target", "loss_per_second",
                                               "samples_per_second")]  # fmt: skip
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for name in ("over seeds", "ended well"):
        table.add_column(name, overflow="fold")
    for figure in wanted:
        table.add_column(figure.title + (f" {figure.unit}" if figure.unit else ""), justify="right", overflow="fold")
    for group in groups:
        well = f"{group.ended_well} of {len(group.arms)}"
        table.add_row(Text(clean(group.name)), Text(well), *map(Text, mean_cells(group, wanted)))
    return table


def _failure_table(arms: Sequence[Arm], padding: int) -> Table:
    """Why arms failed, were interrupted or skipped."""
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for name in ("arm", "status", "tries", "reason"):
        table.add_column(name, overflow="fold")
    for arm in arms:
        reason = "\n".join(clean(line) for line in arm.reason.splitlines())
        style = _style(arm)
        table.add_row(Text(arm.name), Text(arm.status, style=style), Text(f"{arm.attempts}"), Text(reason))
    return table


def _print_words(comparison: Comparison, console: Console) -> None:
    console.print()
    whole = not console.is_terminal
    console.print(Text(clean(comparison.conclusion), style="bold"), soft_wrap=whole)
    for verdict in comparison.verdicts[1:] if len(comparison.groups) > 1 else ():
        console.print(Text(clean(verdict.said)), soft_wrap=whole)
    if comparison.suggestion is not None:
        typed = " ".join(clean(text) for text in comparison.suggestion.overrides)
        beside, why = clean(comparison.suggestion.beside), clean(comparison.suggestion.why)
        console.print(Text(f"try next, beside what {beside} had: {typed} ({why})"), soft_wrap=whole)
        for command in comparison.suggestion.commands:  # one line each, or it could not be pasted
            console.print(Text(clean(command)), soft_wrap=True)
