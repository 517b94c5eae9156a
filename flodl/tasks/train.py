"""task=train and task=rerun: train, here and now, or in a process of its own."""

from __future__ import annotations

import sys
from math import isinf
from typing import TYPE_CHECKING

from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, Problem, RunFailed, RunLost
from flodl.tasks.order import Order

if TYPE_CHECKING:
    from flodl.decide.messages import End
    from flodl.record.figures import Objective

__all__ = ["failure", "here", "perform"]


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
    return here(order)


def here(order: Order) -> Objective | None:
    """Train in this process. Returns what a sweep that learns is told of it (`objective`)."""
    from flodl import trainer
    from flodl.record.figures import of_objective
    from flodl.record.folder import RunFolder
    from flodl.record.result import read_result

    folder = RunFolder.adopt(order.folder)
    folder.sweep = order.sweep
    folder.status.begin()
    end = trainer.run(order.job, folder, begun=order.begun)
    error = failure(end)
    told, warning = of_objective(order.job, read_result(folder.result_path))
    if error is not None:
        error.is_told = True  # the run's summary ends with it
        error.objective = told if isinstance(told, float) and isinf(told) else None
        raise error
    if warning and order.is_arm:
        sys.stderr.write(f"warning: {warning}\n")
    return told


def failure(end: End) -> FlodlError | None:
    """The error that an ended run means; None where it ended well."""
    kinds: dict[int, type[FlodlError]] = {2: ConfigError, 3: NotReady, 4: RunFailed, 5: RunLost}
    if end.exit_code == 0:
        return None
    if end.status == "interrupted":
        return Interrupted(end.reason, exit_code=end.exit_code)
    return kinds.get(end.exit_code, RunFailed)(end.reason)
