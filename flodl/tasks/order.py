"""What a task is, and what it is handed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from flodl.plan import plan_lines
from flodl.record.figures import Objective
from flodl.spec.job import JobSpec

__all__ = ["Chore", "Order", "Task", "show_plan"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job to do something with. folder: where a run goes. begun: time.monotonic() when the command was given.

    given: the task's own arguments, name -> plain value. cluster_file: where the cluster is the user's own, its file.
    sweep: the folder of the sweep that the order is an arm of. on_late_signal: see Caller.
    """

    job: JobSpec
    folder: Path
    begun: float
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cluster_file: Path | None = None
    sweep: Path | None = None
    on_late_signal: Callable[[], None] = lambda: None

    @property
    def is_arm(self) -> bool:
        return self.sweep is not None


def show_plan(order: Order) -> None:
    """launch.dry_run=true: print what would be started."""
    sys.stdout.write("\n".join(plan_lines(order.job)) + "\n")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Something that is done with a job.

    perform: does it; returns what a sweep that learns is told. plan: what launch.dry_run does instead. arguments:
    top-level keys that only this task has. from_spec: the job is read from a spec.json instead of the config tree.
    job_of: makes the job of the composed tree and of what was typed. is_run: it leaves a run folder.
    """

    perform: Callable[[Order], Objective | None]
    plan: Callable[[Order], None] = show_plan
    arguments: tuple[str, ...] = ()
    from_spec: bool = False
    job_of: Callable[[Mapping[str, Any], Iterable[str]], JobSpec] | None = None
    is_run: bool = False


@dataclass(frozen=True, kw_only=True)
class Chore:
    """Something that needs no job, so that it works whatever is wrong with one. It is handed its own arguments.

    What is typed beside them would change nothing, and is refused.
    """

    perform: Callable[[Mapping[str, Any]], None]
    arguments: tuple[str, ...] = ()
    is_run: ClassVar[bool] = False
    from_spec: ClassVar[bool] = False
