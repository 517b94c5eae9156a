"""Where a program's run is told: on its terminal, as everywhere; in a notebook as plain text.

Rich would make an output of its own out of every line there, each with its frame and kept as HTML.
"""

from __future__ import annotations

from rich.console import Console

from flodl.report.terminal import plain_console

__all__ = ["screen"]

WIDTH = 100  # what a cell shows without breaking lines


def screen() -> Console | None:
    """A notebook's; None: as on the command line."""
    return plain_console(WIDTH) if Console().is_jupyter else None
