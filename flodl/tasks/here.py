"""A run in this process, and the error that its end means."""

from __future__ import annotations

import sys
from math import isinf
from typing import TYPE_CHECKING

from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, RunFailed, RunLost
from flodl.tasks.order import Order

if TYPE_CHECKING:
    from flodl.decide.messages import End
    from flodl.record.figures import Objective

__all__ = ["failure", "run_here"]


def run_here(order: Order) -> Objective | None:
    """Train in this process. Returns what a sweep that learns is told of it (`objective`)."""
    from flodl import trainer
    from flodl.caller import Caller
    from flodl.record.figures import of_objective
    from flodl.record.folder import RunFolder
    from flodl.record.result import read_result

    folder = RunFolder.adopt(order.folder)
    folder.sweep = order.sweep
    folder.status.begin()
    end = trainer.run(order.job, folder, begun=order.begun, caller=Caller(on_late_signal=order.on_late_signal))
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
