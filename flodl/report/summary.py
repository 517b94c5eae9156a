"""The end of a run on the terminal: what each rank did, what came of it, and what ElChe gained."""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flodl.decide.totals import RankTotals
from flodl.record.result import Result
from flodl.report.gain import gain, own_pace, went_on
from flodl.spec.counting import counted

__all__ = ["outcome_lines", "print_summary", "rank_table"]

STYLES = {"done": "bold green", "degraded": "bold yellow", "stopped": "bold yellow", "interrupted": "bold yellow"}
COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("rank", "left"),
    ("batches", "right"),
    ("share", "right"),
    ("samples/s", "right"),
    ("pace", "right"),
    ("compute", "right"),
    ("data", "right"),
    ("average", "right"),
    ("idle", "right"),
)


def print_summary(result: Result, console: Console) -> None:
    """Print the table of ranks (where any trained) and the lines below it."""
    if any(rank.batches for rank in result.per_rank):
        console.print(rank_table(result, padding=2 if console.width >= 80 else 1))
    head, *rest = outcome_lines(result)
    whole = not console.is_terminal  # a pipe gets whole lines, a person gets lines broken between words
    console.print(Text(head, style=STYLES.get(result.status, "bold red")), soft_wrap=whole)
    for line in rest:
        console.print(Text(line), soft_wrap=whole)


def rank_table(result: Result, padding: int = 2) -> Table:
    """What each rank did. pace: samples per second of its own compute; the last four: parts of the run's wall
    time, or of what a rank accounts for where that is longer."""
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bold")
    for name, side in COLUMNS:
        table.add_column(name, justify=side, no_wrap=name != "rank", overflow="fold")
    batches = sum(rank.batches for rank in result.per_rank)
    for rank in result.per_rank:
        dead = rank.rank in result.dead_ranks
        cells = _cells(rank, batches, result)
        table.add_row(*(Text(cell) for cell in cells), style="red" if dead else "")
    return table


def outcome_lines(result: Result) -> list[str]:
    """The run in a few plain lines, the first one its outcome."""
    lines = [f"{result.status}: {result.reason}" if result.reason else result.status]
    if result.samples_done:
        lines.append(
            f"{counted(result.epochs_done, 'epoch')}, {result.samples_done:,} samples in "
            f"{_seconds(result.wall_seconds)} ({result.samples_per_second:,.0f} samples/s) after "
            f"{_seconds(result.startup_seconds)} of start-up"
        )
        lines.append(
            f"utilisation {result.utilisation:.3f}: {result.samples_per_second:,.0f} of the "
            f"{result.ideal_samples_per_second:,.0f} samples/s that the ranks' own compute allows"
        )
        if result.world_size > 1:
            lines.append(
                f"{counted(result.rounds, 'averaging')}, {_seconds(result.averaging_seconds_exposed)} waited for; "
                f"anchor {result.anchor}, {result.phase}"
            )
    lines += _gain_lines(result)
    figures = {**({"train loss": result.train_loss} if result.train_loss is not None else {}), **_named(result.eval)}
    if figures:
        lines.append(", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return lines


def _gain_lines(result: Result) -> list[str]:
    found = gain(result)
    if found is None:
        return []
    at_best = f"equal steps at rank {found.slowest}'s pace would give {found.lockstep:,.0f} at best"
    return [f"ElChe: {found.ratio:.2f} x lockstep: {found.achieved:,.0f} samples/s, where {at_best}"]


def _cells(rank: RankTotals, batches: int, result: Result) -> tuple[str, ...]:
    wall_seconds, restarts = _own_seconds(result), result.restarts.get(rank.rank, 0)
    fate = "dead" if rank.rank in result.dead_ranks else ""
    if restarts:
        fate += f"{', ' if fate else ''}restarted {'once' if restarts == 1 else f'{restarts} times'}"

    whole = max(wall_seconds, _accounted_seconds(result))

    def part(seconds: float) -> str:
        return f"{seconds / whole:.1%}" if whole > 0 else "-"

    return (
        f"{rank.rank} {rank.host}:{rank.device}" + (f" ({fate})" if fate else ""),
        f"{rank.batches:,}",
        f"{rank.batches / batches:.1%}" if batches else "-",
        f"{rank.samples / wall_seconds:,.0f}" if wall_seconds > 0 else "-",
        f"{own_pace(rank.samples, rank.compute_seconds):,.0f}",
        part(rank.compute_seconds),
        part(rank.data_wait_seconds),
        part(rank.averaging_seconds),
        part(rank.idle_seconds),
    )


def _own_seconds(result: Result) -> float:
    """Of training, in which its own ranks were there: of a run that went on the longest time that one accounts for."""
    return _accounted_seconds(result) if went_on(result) else result.wall_seconds


def _accounted_seconds(result: Result) -> float:
    """The longest time that a rank accounts for; what it waits for beside training (a long callback) is in it."""
    return max(r.compute_seconds + r.data_wait_seconds + r.averaging_seconds + r.idle_seconds for r in result.per_rank)


def _named(evaluation: dict[str, float]) -> dict[str, float]:
    return {f"eval {name}" if name == "loss" else name: value for name, value in sorted(evaluation.items())}


def _seconds(seconds: float) -> str:
    """A duration for people: 0.42 s, 12.3 s, 3 min 05 s, 2 h 07 min."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
