"""Where a program's run is told: on its terminal, as everywhere; in a notebook as plain text.

Rich would make an output of its own out of every line there, each with its frame and kept as HTML.
"""

from __future__ import annotations

import sys
from typing import TextIO, cast

from rich.console import Console

from flodl.report.sturdy import Sturdy

__all__ = ["screen"]

WIDTH = 100  # what a cell shows without breaking lines


def screen() -> Console | None:
    """A notebook's; None: as on the command line."""
    if not Console().is_jupyter:
        return None
    return Console(
        file=cast("TextIO", Sturdy(sys.stdout)),
        force_jupyter=False,
        force_terminal=False,  # a kernel says that colours are wanted: a bar that moves is not
        markup=False,
        emoji=False,
        highlight=False,
        width=WIDTH,
    )
