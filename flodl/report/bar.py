"""The moving part of the display, drawn from a View: one line of figures, one of shares."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flodl.decide.messages import Event, RankReady
from flodl.decide.view import View
from flodl.report.news import shares_line

__all__ = ["Bar", "duration"]

BAR_WIDTH = 24
SHARE_WIDTH = 20
WAITING = {
    "gathering": "waiting for the ranks",
    "forming": "the ranks form their group",
    "recovering": "the survivors form a new group",
    "repairing": "the survivors mend the round",
    "joining": "who is back takes its place",
    "finishing": "evaluating and saving",
    "over": "over",
}


class Bar:
    """Knows when training began, so that it can tell the time that is left."""

    def __init__(self, clock: Callable[[], float], num_ranks: int = 0) -> None:
        self._clock = clock
        self._num_ranks = num_ranks
        self._ready = 0
        self._since: tuple[float, float] | None = None  # (clock, progress) when the first progress was seen

    def observe(self, event: Event) -> None:
        """Count the ranks that are ready."""
        if isinstance(event, RankReady):
            self._ready += 1

    def drawn(self, view: View, width: int) -> RenderableType:
        """The whole display, at most `width` columns wide."""
        if view.activity in WAITING:
            ready = f": {self._ready} of {self._num_ranks} ready" if view.activity == "gathering" else ""
            return Text(WAITING[view.activity] + ready, style="dim", no_wrap=True, overflow="ellipsis")
        line = Table.grid(padding=(0, 1))
        line.add_column(width=min(BAR_WIDTH, max(4, width - 60)))
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(ProgressBar(total=1.0, completed=view.progress), Text(self.line(view)))
        return Group(line, _shares(view)) if len(view.shares) > 1 else line

    def line(self, view: View) -> str:
        """The figures in one line."""
        if view.activity in WAITING:
            return WAITING[view.activity]
        parts = [
            f"{view.progress:4.0%}",
            f"epoch {min(view.epoch + 1, view.num_epochs)}/{view.num_epochs}",
            f"{view.samples_per_second:,.0f} samples/s",
            *([f"loss {view.loss:.3f}"] if view.loss is not None else []),
            f"anchor {view.anchor} {view.phase}",
        ]
        left = self._seconds_left(view.progress)
        return "  ".join([*parts, *([f"{duration(left)} left"] if left is not None else [])])

    def _seconds_left(self, progress: float) -> float | None:
        """From the progress since it was first seen (a resumed run does not begin at 0); None while it is unknown."""
        now = self._clock()
        if self._since is None:
            self._since = (now, progress)
        began, start = self._since
        if progress <= start or progress >= 1.0:
            return None
        return (now - began) * (1.0 - progress) / (progress - start)


def duration(seconds: float) -> str:
    """0:07, 12:05, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _shares(view: View) -> RenderableType:
    """Each rank's part of the newest round: little bars for a few ranks, figures for many."""
    if len(view.shares) > 4:
        return Text(f"shares {shares_line(view.shares)}", style="dim", no_wrap=True, overflow="ellipsis")
    text = Text("shares", style="dim", no_wrap=True, overflow="ellipsis")
    for rank, share in view.shares.items():
        text.append(f"  r{rank} ", style="")
        text.append("━" * max(1, round(share * SHARE_WIDTH)), style="green")
        text.append(f" {share:.0%}", style="")
    return text
