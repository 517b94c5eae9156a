"""What can be done with a job: a table of tasks, and the plan that `launch.dry_run` prints instead.

What a task needs is imported when it is done: a dry run loads no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, Problem, RunFailed, RunLost
from flodl.plan import gpus_of, plan_lines, uncounted
from flodl.probe.here import is_here
from flodl.spec.job import JobSpec

if TYPE_CHECKING:
    from flodl.decide.messages import End

__all__ = ["TASKS", "Order", "Task", "failure", "show_plan", "simulate", "train", "unbuilt"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job to do something with. folder: where a run goes. begun: time.monotonic() when the command was given."""

    job: JobSpec
    folder: Path
    begun: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """perform: does it. arguments: top-level keys that only this task has. from_spec: the job is read from a spec.json
    instead of the config tree."""

    perform: Callable[[Order], None]
    arguments: tuple[str, ...] = ()
    from_spec: bool = False


def show_plan(order: Order) -> None:
    """launch.dry_run=true: print what would be started."""
    lines = [*plan_lines(order.job), *(f"not yet     {problem}" for problem in unbuilt(order.job))]
    sys.stdout.write("\n".join(lines) + "\n")


def train(order: Order) -> None:
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


def simulate(order: Order) -> None:
    """The same job in virtual time; prints what each epoch would be like."""
    job = order.job
    from flodl.decide.roster import resolve_mode, roster
    from flodl.forecast import print_forecast
    from flodl.probe.clock import seconds_until
    from flodl.sim import simulate as run_virtually

    unknown = uncounted(job)
    for host in unknown:
        sys.stderr.write(f"warning: {host.host}: nobody is asked how many GPUs it has; taken as one\n")
    places = roster(job, gpus_of(job) | {host.host: 1 for host in unknown})
    job = job.replace(elche=job.elche.resolved(resolve_mode(places)))
    for key, metric in job.stop.metrics.items():
        sys.stderr.write(f"warning: {key}={metric}: is ignored: virtual time trains nothing, so there are no figures\n")
    end_by = None if job.stop.at is None else (seconds_until(job.stop.at), f"stop.at={job.stop.at}")
    seen = run_virtually(job.replace(stop=job.stop.without_figures()), places, end_by=end_by)
    print_forecast(job, places, seen.end, seen.epochs)


def failure(end: End) -> FlodlError | None:
    """The error that an ended run means; None where it ended well."""
    kinds: dict[int, type[FlodlError]] = {2: ConfigError, 3: NotReady, 4: RunFailed, 5: RunLost}
    if end.exit_code == 0:
        return None
    if end.status == "interrupted":
        return Interrupted(end.reason, exit_code=end.exit_code)
    return kinds.get(end.exit_code, RunFailed)(end.reason)


def unbuilt(job: JobSpec) -> Iterator[Problem]:
    """What a cluster file may say and this version cannot do yet: refused in words, never passed over."""
    later = "comes with a later version of flodl"
    for i, host in enumerate(job.cluster.workers):
        key = f"cluster.workers[{i}]"
        if not is_here(host):
            yield Problem(key=f"{key}.host", value=host.host, constraint=f"is another machine, and SSH {later}",
                          remedy="use cluster=local or rehearsal; task=simulate does without the hosts")  # fmt: skip
        if host.docker is not None:
            yield Problem(key=f"{key}.docker", value=host.docker, constraint=later, remedy="leave it out")
    for name in ("code", "data"):
        if getattr(job.cluster.deploy, name) != "none":
            yield Problem(key=f"cluster.deploy.{name}", value="rsync", constraint=later, remedy="copy it yourself")
    if job.cluster.controller.join.min_ranks is not None:
        yield Problem(key="cluster.controller.join.min_ranks", value=str(job.cluster.controller.join.min_ranks),
                      constraint=f"a start without all ranks {later}", remedy="leave it null")  # fmt: skip
    if job.membership.max_failure is not None:
        yield Problem(key="membership.max_failure", value=str(job.membership.max_failure), remedy="leave it null",
                      constraint=f"the first dead rank ends a run; going on without it {later}")  # fmt: skip


TASKS = {
    "rerun": Task(perform=train, arguments=("spec",), from_spec=True),
    "simulate": Task(perform=simulate),
    "train": Task(perform=train),
}
