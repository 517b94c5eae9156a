"""task=train and task=rerun: train, here and now, or in a process of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flodl.errors import ConfigError, Problem
from flodl.tasks.here import run_here
from flodl.tasks.order import Order, show_plan

if TYPE_CHECKING:
    from flodl.record.figures import Objective

__all__ = ["perform", "plan"]


def plan(order: Order) -> None:
    """launch.dry_run=true: what would be started; what it cannot go on from is refused as it would be then."""
    if order.job.checkpoint.resume_from is not None:
        from flodl.origin import origin_bundle

        origin_bundle(order.job, _say)
    show_plan(order)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def perform(order: Order) -> Objective | None:
    """Train. Raises what became of the run, unless it ended well; a detached one is only started."""
    from flodl.record.folder import RunFolder

    problems: list[Problem] = []
    if RunFolder(order.folder).spec_path.exists():
        problems.append(Problem(key="hydra.run.dir", value=str(order.folder), constraint="holds a run already",
                                remedy="leave it out: every run gets a folder of its own"))  # fmt: skip
    if order.job.launch.detach and order.job.debug.inprocess:
        problems.append(Problem(key="launch.detach", value="true", constraint="leaves no terminal, and a debugger "
                                "(debug.inprocess) wants one", remedy="choose one of the two"))  # fmt: skip
    if problems:
        raise ConfigError(problems)
    if order.job.launch.detach:
        from flodl.tasks import detached

        detached.leave(order)
        return None
    return run_here(order)
