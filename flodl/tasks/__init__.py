"""What can be done: a table of tasks, one file each.

What a task needs is imported when it is done: a dry run loads no torch. Tasks raise, they never exit. A task's own
arguments are top-level keys that only its file in conf/task/ defines; all else that it is told is the job.
"""

from __future__ import annotations

from flodl.tasks import (
    compare,
    evaluate,
    execute,
    init,
    nccl_build,
    probe,
    resume,
    setup,
    simulate,
    status,
    stop,
    train,
)
from flodl.tasks.here import failure
from flodl.tasks.order import Chore, Order, Task, show_plan

__all__ = ["TASKS", "Chore", "Order", "Task", "failure", "show_plan"]

TASKS: dict[str, Task | Chore] = {
    "compare": Chore(perform=compare.perform, arguments=compare.ARGUMENTS),
    "eval": Task(perform=evaluate.perform, arguments=("run", "json"), job_of=evaluate.job_of),
    "exec": Task(perform=execute.perform, plan=execute.plan, arguments=("command",)),
    "init": Task(perform=init.perform, plan=init.plan, arguments=("hosts", "write")),
    "nccl_build": Task(
        perform=nccl_build.perform, plan=nccl_build.plan, arguments=("method", "tag", "source", "jobs", "write")
    ),
    "probe": Task(perform=probe.perform, plan=probe.plan, arguments=("json",)),
    "rerun": Task(perform=train.perform, plan=train.plan, arguments=("spec",), from_spec=True, is_run=True),
    "resume": Task(perform=train.perform, plan=train.plan, arguments=("run",), job_of=resume.job_of, is_run=True),
    "setup": Task(perform=setup.perform, plan=setup.plan),
    "simulate": Task(perform=simulate.perform),
    "status": Chore(perform=status.perform, arguments=("run", "json")),
    "stop": Chore(perform=stop.perform, arguments=("run", "wait_seconds")),
    "train": Task(perform=train.perform, plan=train.plan, is_run=True),
}
