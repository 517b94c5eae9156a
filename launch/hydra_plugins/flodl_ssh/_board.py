"""What became of the arms: gathered as they end, told to whoever asked for the sweep, written beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Literal

from hydra.core.utils import JobReturn, filter_overrides
from hydra.types import TaskFunction
from omegaconf import DictConfig

from flodl.errors import FlodlError, Interrupted, Skipped
from flodl.record.result import Status
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.compare import Comparison, compare, comparison_json
from flodl.report.gather import with_history
from flodl.report.leave import leave_comparison_page
from flodl.report.markdown import comparison_markdown
from flodl.report.tables import print_comparison
from flodl.report.terminal import terminal_console
from hydra_plugins.flodl_ssh._options import Options
from hydra_plugins.flodl_ssh._workshop import Job, Outcome, job_return, told_return

__all__ = ["Board"]

log = logging.getLogger(__name__)


class Board:
    """The outcomes of a whole sweep, over all calls of the launcher."""

    def __init__(self, config: DictConfig, options: Options, task: TaskFunction) -> None:
        self._folder = SweepFolder(str(config.hydra.sweep.dir))
        self._options = options
        self._tell = getattr(task, "told", None)
        self._outcomes: dict[int, Outcome] = {}
        self._arms: dict[int, Arm] = {}
        self._jobs: tuple[Job, ...] = ()
        self._end: Exception | None = None  # why no further arm begins

    def open(self, jobs: Sequence[Job]) -> None:
        """A batch begins. Raises what ended the sweep in an earlier one."""
        if self._end is not None:
            raise self._end
        self._folder.path.mkdir(parents=True, exist_ok=True)
        self._jobs = tuple(jobs)

    @property
    def is_over(self) -> bool:
        """No further arm begins."""
        return self._end is not None

    def add(self, outcome: Outcome) -> None:
        """An arm has ended."""
        self._outcomes[outcome.job.index] = outcome
        self._arms.pop(outcome.job.index, None)
        error, which = outcome.error, f"arm {outcome.name}"
        if isinstance(error, Interrupted):
            self.stop(Interrupted(f"not started: {which} was interrupted", exit_code=error.exit_code))
        elif error is not None and not isinstance(error, Skipped) and self._options.on_failure == "stop":
            self.stop(Skipped(f"not started: {which} failed, and hydra.launcher.on_failure is stop"))
        self._write()

    def interrupt(self, job: Job) -> None:
        """A signal broke an arm off."""
        error = Interrupted("a signal")
        self.add(Outcome(job=job, ret=job_return(job, error), error=error, name=f"{job.index}", folder=f"{job.index}",
                         attempts=1))  # fmt: skip

    def stop(self, why: Exception) -> None:
        """No further arm begins; the first reason stays."""
        self._end = why if self._end is None else self._end

    def conclude(self) -> None:
        """The batch is over, however it came: those that never began are noted, everybody is told."""
        end = self._end or Interrupted("not started: the sweep was broken off")
        for job in self._jobs:
            if job.index not in self._outcomes:
                self._outcomes[job.index] = Outcome(job=job, ret=job_return(job, end), error=end, name=f"{job.index}",
                                                    folder="", attempts=0)  # fmt: skip
        comparison = self._write()
        if comparison is not None:
            arms = comparison.arms
            shown = {arms[i].name for i, index in enumerate(sorted(self._outcomes)) if index in self._batch()}
            console = terminal_console()
            print_comparison(comparison, console, shown)
            console.print(f"comparison: {self._folder.comparison_markdown_path}", soft_wrap=True)
            if trouble := leave_comparison_page(self._folder, comparison):
                log.warning(trouble)
            else:
                console.print(f"as a page: {self._folder.comparison_page_path}", soft_wrap=True)
        if self._tell is not None:
            found = [(o.ret.overrides or [], o.error) for _, o in sorted(self._outcomes.items())]
            self._tell(found, self._folder.path)

    def returns(self, jobs: Iterable[Job]) -> list[JobReturn]:
        """What Hydra is told of these jobs. A failure that flodl explains is in the table; a bug stays one.

        A run that was lost to infinity is a result for a sweeper that learns: how bad is known.
        """
        outcomes = [self._outcomes[job.index] for job in jobs]
        is_flodls = self._tell is not None
        return [told_return(o.ret, o.error) if is_flodls and isinstance(o.error, FlodlError) else o.ret
                for o in outcomes]  # fmt: skip

    def _batch(self) -> set[int]:
        return {job.index for job in self._jobs}

    def _write(self) -> Comparison | None:
        """Write the comparison of all arms so far; None where there is nothing to tell (a dry run)."""
        for index, outcome in self._outcomes.items():
            if index not in self._arms:
                self._arms[index] = with_history(self._arm(outcome), self._folder.path)
        arms = [arm for _, arm in sorted(self._arms.items())]
        if all(arm.status == "done" and arm.result is None for arm in arms):
            return None
        comparison = compare(arms)
        try:
            self._folder.write_comparison(comparison_json(comparison), comparison_markdown(comparison))
        except OSError as error:
            log.warning(f"the comparison could not be written: {error}")
        return comparison

    def _arm(self, outcome: Outcome) -> Arm:
        error = outcome.error
        folder = error.folder if isinstance(error, Skipped) and error.folder else outcome.folder
        found = self._folder.result_of(folder) if folder else None
        status: Status | Literal["skipped"]
        if error is None:
            status = "done" if found is None else found.status
        elif isinstance(error, Skipped):
            status = "skipped"
        else:
            status = "interrupted" if isinstance(error, Interrupted) else "failed"
        reason = found.reason if error is None and found is not None else _said(error)
        overrides = tuple(filter_overrides(outcome.job.overrides))
        return Arm(name=outcome.name, overrides=overrides, status=status, reason=reason, attempts=outcome.attempts,
                   folder=folder, result=found)  # fmt: skip


def _said(error: Exception | None) -> str:
    return "" if error is None else str(error) or type(error).__name__
