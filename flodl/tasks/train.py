"""task=train and task=rerun: train, here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, Problem, RunFailed, RunLost
from flodl.tasks.order import Order
from flodl.tasks.unbuilt import unbuilt

if TYPE_CHECKING:
    from flodl.decide.messages import End

__all__ = ["failure", "perform"]


def perform(order: Order) -> None:
    """Train here and now. Raises what became of the run, unless it ended well."""
    from flodl import trainer
    from flodl.record.folder import RunFolder

    problems = list(unbuilt(order.job))
    if RunFolder(order.folder).spec_path.exists():
        problems.append(Problem(key="hydra.run.dir", value=str(order.folder), constraint="holds a run already",
                                remedy="leave it out: every run gets a folder of its own"))  # fmt: skip
    if problems:
        raise ConfigError(problems)
    end = trainer.run(order.job, RunFolder.adopt(order.folder), begun=order.begun)
    error = failure(end)
    if error is not None:
        error.is_told = True  # the run's summary ends with it
        raise error


def failure(end: End) -> FlodlError | None:
    """The error that an ended run means; None where it ended well."""
    kinds: dict[int, type[FlodlError]] = {2: ConfigError, 3: NotReady, 4: RunFailed, 5: RunLost}
    if end.exit_code == 0:
        return None
    if end.status == "interrupted":
        return Interrupted(end.reason, exit_code=end.exit_code)
    return kinds.get(end.exit_code, RunFailed)(end.reason)
