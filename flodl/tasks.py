"""What can be done with a job: a table of tasks, and the plan that `launch.dry_run` prints instead.

What a task needs is imported when it is done: a dry run loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flodl.spec.job import JobSpec

__all__ = ["TASKS", "Task", "plan"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """perform: does it, with the job and the run folder. arguments: top-level keys that only this task has.
    from_spec: the job is read from a spec.json instead of the config tree."""

    perform: Callable[[JobSpec, Path], None]
    arguments: tuple[str, ...] = ()
    from_spec: bool = False


def plan(job: JobSpec, folder: Path) -> None:
    print(job)


TASKS = {"train": Task(perform=plan), "simulate": Task(perform=plan), "rerun": Task(perform=plan, arguments=("spec",), from_spec=True)}
