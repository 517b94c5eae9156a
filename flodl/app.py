"""The door: what was typed becomes a job and a task. Hydra composes, everything after that is plain values.

Tasks raise, they never exit: in a sweep one arm's failure must not take the others with it. Only
``flodl.__main__`` turns an error into an exit code.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from flodl import hooks
from flodl.arms import Arms, refuse_finished
from flodl.compose import check_trust, job_of, refuse_passwords, refuse_sweep, resolve, typed_trust
from flodl.errors import ConfigError, Problem
from flodl.further import explained, value_problems
from flodl.record.figures import Objective
from flodl.record.sweep import SweepFolder
from flodl.spec.checks import ineffective
from flodl.spec.codec import load_spec
from flodl.spec.job import JobSpec
from flodl.tasks import TASKS, Chore, Order, Task
from flodl.tasks.again import choices

__all__ = ["run"]

# What may stand beside task=rerun: anything else would change nothing, for the job is the file's.
_RERUN_KEYS = ("task", "spec", "trusted_targets", "launch.dry_run", "launch.detach", "launch")


@dataclass(kw_only=True)
class _Command:
    """One command line and what became of it. added: choices of the run that it is about."""

    arguments: Sequence[str]
    begun: float
    added: Sequence[str] = ()
    arms: Arms = field(default_factory=Arms)

    def __call__(self, config: DictConfig) -> Objective | None:
        """Hydra's task function: one arm. An only one began with the command, an arm of a sweep begins now."""
        self.arms.is_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        begun = time.monotonic() if self.arms.is_sweep else self.begun
        return self.arms.attempt(_overrides(), lambda: _perform(config, self, begun))


def run(arguments: Sequence[str]) -> None:
    """Carry out one command line (without the program's name). Raises FlodlError for whatever a user can mend."""
    begun = time.monotonic()
    _refuse_typed_passwords(arguments)
    hooks.register()
    folder = hooks.config_folder()
    for name in hooks.shadowed_choices(folder, Path.cwd() / "conf"):
        _warn(f"conf/{name} of this folder is not used: flodl ships a choice of that name; give yours another name")
    added = choices(arguments)
    command = _Command(arguments=arguments, begun=begun, added=added, arms=Arms(typed=arguments))
    primary = hooks.primary_config(folder)
    main = hydra.main(config_path=str(folder), config_name=primary, **hooks.main_arguments())(_named(command))
    groups = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    try:
        with _full_errors(), _typed([*added, *arguments]):
            main()
    except hooks.Refused as refused:
        raise ConfigError(refused.problems) from None
    except KeyboardInterrupt:
        if not command.arms.was_interrupted:  # else what became of a sweep's arms is known, and told below
            raise
    except Exception as error:
        if not command.arms.hold(error):
            raise explained(error, groups, [*added, *arguments], value_problems) or error from error
    finally:
        GlobalHydra.instance().clear()
        _release_fleet()
    _tell_loggers(command.arms)
    command.arms.conclude()


def _perform(config: DictConfig, command: _Command, begun: float) -> Objective | None:
    name = _choice(config)
    task = TASKS[name]
    if isinstance(task, Chore):
        parts = [key for text in _overrides() if (key := text.partition("=")[0]).partition(".")[0] in task.arguments]
        _refuse_idle(name, ("task", *task.arguments, *parts), "nothing else says anything to it")
        task.perform(resolve(OmegaConf.masked_copy(config, list(task.arguments))))
        return None
    hydra_config = HydraConfig.get()
    if hydra_config.mode != RunMode.MULTIRUN:
        refuse_sweep(hydra_config, "give -m: python -m flodl -m ...")
    tree = resolve(config)
    refuse_passwords(tree, task.arguments)
    typed = typed_trust(command.arguments)
    job = _job_of(task, tree, command.added)
    check_trust(job, typed, Path.cwd())
    for warning in ineffective(job):
        _warn(str(warning))
    order = Order(
        job=job,
        folder=Path(hydra_config.runtime.output_dir),
        begun=begun,
        given={key: tree[key] for key in task.arguments},
        cluster_file=hooks.own_choice("cluster", str(hydra_config.runtime.choices.get("cluster"))),
        sweep=Path(hydra_config.sweep.dir) if hydra_config.mode == RunMode.MULTIRUN else None,
        on_late_signal=command.arms.break_off,
    )
    if task.is_run:
        _check_loggers(job)
        command.arms.refuse_same(job, _overrides())
    if job.launch.dry_run:
        task.plan(order)
        return None
    if task.is_run:
        _skip_finished(job)
    return task.perform(order)


def _refuse_typed_passwords(arguments: Sequence[str]) -> None:
    """Before Hydra writes down what was typed."""
    pairs = (text.lstrip("+~").partition("=") for text in arguments)
    refuse_passwords({key: value for key, _, value in pairs},
                     {key for task in TASKS.values() for key in task.arguments})  # fmt: skip


def _job_of(task: Task, tree: dict[str, Any], added: Sequence[str]) -> JobSpec:
    if task.job_of is not None:
        return task.job_of(tree, [text for text in _overrides() if text not in added])
    return _rerun_job(tree) if task.from_spec else job_of(tree, ("task", *task.arguments))


def _choice(config: DictConfig) -> str:
    name = None if OmegaConf.is_missing(config, "task") else config.get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise ConfigError([Problem(key="task", value=str(name), constraint="there is no such task",
                                   remedy=f"task is one of {', '.join(sorted(TASKS))}")])  # fmt: skip
    return name


def _rerun_job(tree: dict[str, Any]) -> JobSpec:
    """The job of a spec.json. What was typed beside it would change nothing, so it is refused."""
    _refuse_idle("rerun", _RERUN_KEYS, "the job is the file's")
    job = load_spec(Path(str(tree["spec"])))
    launch = tree["launch"]
    return job.replace(launch=job.launch.replace(dry_run=bool(launch["dry_run"]), detach=bool(launch["detach"])))


def _refuse_idle(name: str, known: Sequence[str], why: str) -> None:
    """Refuse what was typed beside the keys that a task looks at."""
    typed = [text.lstrip("+~") for text in _overrides()]
    idle = [text for text in typed if text.partition("=")[0] not in known]
    if idle:
        raise ConfigError([Problem(key=text.partition("=")[0], value=text.partition("=")[2],
                                   constraint=f"is ignored by task={name}: {why}",
                                   remedy="leave it out, or compose a new job with task=train")
                           for text in idle])  # fmt: skip


def _overrides() -> list[str]:
    """What was typed (or swept) for this arm, as typed: ${...} in it is not resolved."""
    texts = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return [str(text) for text in texts] if isinstance(texts, list) else []


def _named(command: _Command) -> Callable[[DictConfig], Objective | None]:
    """The task function as Hydra wants it: a function of this module."""

    def flodl(config: DictConfig) -> Objective | None:
        return command(config)

    flodl.told = command.arms.told  # pyright: ignore[reportFunctionMemberAccess] - our launcher looks for it
    return flodl


def _check_loggers(job: JobSpec) -> None:
    """Raise ConfigError where one cannot be made, or its package is missing: before anything is started."""
    if job.logger:
        from flodl.desk import made

        made(job)


def _tell_loggers(arms: Arms) -> None:
    """The sweep is over: its comparison goes where its arms' figures went."""
    if arms.folder is not None:
        from flodl.desk import tell_sweep

        tell_sweep(SweepFolder(arms.folder), _warn_plainly)


def _warn_plainly(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _release_fleet() -> None:
    """The sweep is over: end what was kept between its arms, where anything was."""
    if "flodl.engine.fleet" in sys.modules:
        from flodl.engine import fleet

        fleet.release()


def _skip_finished(job: JobSpec) -> None:
    """hydra.launcher.skip_completed: an arm whose job was done before, in this sweep or under outputs/, is left out."""
    config = HydraConfig.get()
    if config.mode == RunMode.MULTIRUN and config.launcher.get("skip_completed"):
        roots = (Path(config.sweep.dir), Path(config.runtime.cwd) / "outputs")
        refuse_finished(job, roots, hosts_may_differ=config.launcher.get("max_parallel", 1) > 1)


def _warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


@contextmanager
def _full_errors() -> Iterator[None]:
    """Hydra hands its errors on instead of printing them and leaving with 1."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


@contextmanager
def _typed(arguments: Sequence[str]) -> Iterator[None]:
    """hydra.main reads sys.argv."""
    before = sys.argv
    sys.argv = [before[0], *arguments]
    try:
        yield
    finally:
        sys.argv = before
