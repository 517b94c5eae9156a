"""The run on the terminal while it goes on. Two displays of one interface: a bar that moves, or plain lines.

`observe` is a listener of drive.run and says what a person should know, line by line; `tick` keeps the bar moving.
Both are called from drive's own thread, so the display has none. Foreign text is printed as it is, never as markup.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flodl.decide.messages import Command, Event
from flodl.decide.view import View
from flodl.report.bar import Bar
from flodl.report.news import News, news
from flodl.report.sturdy import Sturdy

__all__ = ["LiveTerminal", "PlainTerminal", "Terminal", "plain_console", "terminal", "terminal_console"]

REFRESH_SECONDS = 0.1
PLAIN_SECONDS = 30.0
FOREIGN_CHARACTERS = 500  # of a rank's line; the whole of it is in its log
PLAIN_WIDTH = 160
STYLES = {"bad": "bold red", "warning": "yellow", "quiet": "dim", "said": ""}


def terminal_console() -> Console:
    """The console that everything is printed to: no markup, no emoji codes, no highlighting of foreign text.

    It goes on in silence where nobody reads any more.
    """
    screen = cast("TextIO", Sturdy(sys.stdout))
    console = Console(file=screen, markup=False, emoji=False, highlight=False)
    return console if console.is_terminal else plain_console(PLAIN_WIDTH)


def plain_console(width: int) -> Console:
    """One for text alone: nothing moves, whatever the environment says of colours, and a notebook gets no frames."""
    return Console(
        file=cast("TextIO", Sturdy(sys.stdout)),
        force_jupyter=False,
        force_terminal=False,
        markup=False,
        emoji=False,
        highlight=False,
        width=width,
    )


def terminal(view: Callable[[], View], console: Console, num_ranks: int) -> Terminal:
    """The display that suits the console: the bar where a person watches, lines in a pipe, a log or CI."""
    watched = console.is_interactive and not os.environ.get("CI")
    return LiveTerminal(view, console, num_ranks) if watched else PlainTerminal(view, console)


class Terminal:
    """Prints lines. A context manager: leaving it restores the screen, whatever happened."""

    def __init__(self, view: Callable[[], View], console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._console = console
        self._clock = clock

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Say what this event and its commands mean for a person, if anything."""
        for line in news(event, commands, self._view()):
            self._print(line)

    def foreign(self, prefix: str, line: str) -> None:
        """A rank's own line, cleaned by the record: shown behind its prefix, cut where it would flood the screen."""
        shown = line if len(line) <= FOREIGN_CHARACTERS else line[:FOREIGN_CHARACTERS] + " ..."
        self._print(News(kind="said", text=f"{prefix} {shown}"))

    def say(self, text: str) -> None:
        """A line of the controller's own."""
        self._print(News(kind="said", text=text))

    def tick(self) -> None:
        """Keep the display fresh; to be called often."""

    def close(self) -> None:
        """Give the screen back. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _print(self, line: News) -> None:
        self._console.print(Text(line.text, style=STYLES[line.kind]), soft_wrap=not self._console.is_terminal)


class PlainTerminal(Terminal):
    """Lines only: for a pipe, a file, CI or a terminal that cannot move its cursor. A sign of life every 30 s."""

    def __init__(self, view: Callable[[], View], console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(view, console, clock)
        self._bar = Bar(clock)
        self._due = clock() + PLAIN_SECONDS

    def tick(self) -> None:
        if self._clock() >= self._due:
            self._print(News(kind="said", text=self._bar.line(self._view())))

    def _print(self, line: News) -> None:
        self._due = self._clock() + PLAIN_SECONDS
        super()._print(line)


class LiveTerminal(Terminal):
    """Lines, and below them a bar: epoch, progress, rate, loss, anchor, phase, time left, and each rank's share."""

    def __init__(
        self,
        view: Callable[[], View],
        console: Console,
        num_ranks: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(view, console, clock)
        self._bar = Bar(clock, num_ranks=num_ranks)
        self._due = clock()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        self.tick()
        return self

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        super().observe(event, commands)
        self._bar.observe(event)

    def tick(self) -> None:
        if self._clock() >= self._due:
            self._due = self._clock() + REFRESH_SECONDS
            self._live.update(self._bar.drawn(self._view(), self._console.width), refresh=True)

    def close(self) -> None:
        self._live.stop()
