"""One arm after another in this process: compose, find a folder, run, and again where that is worth it."""

from __future__ import annotations

import functools
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from flodl.errors import ConfigError, FlodlError, Interrupted, Skipped
from flodl.explain import explain
from flodl.record.sweep import SweepFolder
from hydra_plugins.flodl_ssh._options import Options

__all__ = [
    "Job",
    "Outcome",
    "Workshop",
    "job_return",
    "keep_fleet",
    "log_as_launcher",
    "print_bug",
    "release_fleet",
    "told_return",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the sweeper asks for: its number in the sweep, and all overrides, Hydra's own included."""

    index: int
    overrides: tuple[str, ...]

    @property
    def shown(self) -> str:
        return " ".join(filter_overrides(self.overrides)) or "(no overrides)"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job. name: the arm's folder as configured. folder: the one that was used. error: None where it
    went well; `Skipped` is no failure. attempts: 0 where it was never begun."""

    job: Job
    ret: JobReturn
    error: Exception | None
    name: str
    folder: str
    attempts: int
    seconds: float = 0.0


class Workshop:
    """Holds what all jobs of a sweep share."""

    def __init__(self, context: HydraContext, task: TaskFunction, config: DictConfig, options: Options) -> None:
        self.is_flodls = callable(getattr(task, "told", None))
        self._context = context
        self._task = _guarded(task)
        self._config = config
        self._options = options

    def run(self, job: Job, hosts: Sequence[str] = ()) -> Outcome:
        """Carry one job out, as often as it takes or is allowed. hosts: labels of those it may use; none: all.

        KeyboardInterrupt passes through.
        """
        if self.is_flodls:
            keep_fleet()
        begun, tries = time.monotonic(), self._options.retries + 1
        outcome = self._once(job, hosts, 1, begun)
        while _is_worth_retrying(outcome.error) and outcome.attempts < tries:
            log.info(f"arm {job.index} is tried again ({outcome.attempts + 1} of {tries}): {outcome.error}")
            outcome = self._once(job, hosts, outcome.attempts + 1, begun)
        return outcome

    def compose(self, job: Job, hosts: Sequence[str] = ()) -> DictConfig:
        """The job's whole configuration."""
        config = self._context.config_loader.load_sweep_config(self._config, list(job.overrides))
        with open_dict(config):
            config.hydra.job.id = str(job.index)
            config.hydra.job.num = job.index
        if hosts:
            with read_write(config), open_dict(config):
                config.cluster.workers = [worker for worker in config.cluster.workers if worker.host in hosts]
        return config

    def name_of(self, config: DictConfig) -> str:
        """What hydra.sweep.subdir means for this job."""
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        try:
            return str(OmegaConf.select(config, "hydra.sweep.subdir"))
        finally:
            HydraConfig.instance().cfg = before

    def _once(self, job: Job, hosts: Sequence[str], attempt: int, begun: float) -> Outcome:
        name = folder = f"{job.index}"
        try:
            config = self.compose(job, hosts)
            name = self.name_of(config)
            folder = SweepFolder(str(config.hydra.sweep.dir)).free_name(name)
            if folder != name:
                with read_write(config.hydra), open_dict(config.hydra):
                    config.hydra.sweep.subdir = folder
            ret = run_job(hydra_context=self._context, task_function=self._task, config=config,
                          job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir")  # fmt: skip
        except Exception as error:  # noqa: BLE001 - an arm that cannot be composed is a failed arm, not the sweep's end
            words = explain(error, [], job.overrides) if self.is_flodls else None
            ret = job_return(job, words or error)
        log_as_launcher(self._context, self._config)
        error = ret._return_value if ret.status == JobStatus.FAILED else None  # (the property raises it)
        if isinstance(error, Skipped):  # a sweeper that reads the return values goes on
            ret.return_value, ret.status = error.objective, JobStatus.COMPLETED
        return Outcome(job=job, ret=ret, error=error, name=name, folder=folder, attempts=attempt,
                       seconds=time.monotonic() - begun)  # fmt: skip


def job_return(job: Job, error: Exception) -> JobReturn:
    """What Hydra is told of a job that its own run_job did not end."""
    ret = JobReturn(overrides=list(filter_overrides(job.overrides)), status=JobStatus.FAILED)
    ret.return_value = error
    return ret


class _ToldReturn(JobReturn):
    """Of a failure that the user has read: whoever asks for the value is told it by the error alone.

    Hydra's own sweeper asks for every one, and each writes "Error executing job with overrides" on the terminal.
    """

    @property
    def return_value(self) -> Any:
        if self.status == JobStatus.FAILED:
            raise self._return_value
        return super().return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value


def told_return(ret: JobReturn, error: FlodlError) -> JobReturn:
    """The same return, of a failure that was explained in words; completed where a value is known all the same."""
    if error.objective is None:
        return _ToldReturn(**vars(ret))
    return JobReturn(**{**vars(ret), "status": JobStatus.COMPLETED, "_return_value": error.objective})


def log_as_launcher(context: HydraContext, config: DictConfig) -> None:
    """Hydra's own log is the one that speaks; a job has one of its own. (1.4 asks what a config may name there.)"""
    whitelist = getattr(context, "execution_whitelist", None)
    known = {} if whitelist is None else {"execution_whitelist": whitelist}
    configure_log(config.hydra.hydra_logging, config.hydra.verbose, **known)


def keep_fleet() -> None:
    """Agents and warm interpreters of flodl's runs outlive a run from now on."""
    from flodl.engine import fleet

    fleet.keep()


def release_fleet() -> None:
    """End them."""
    from flodl.engine import fleet

    fleet.release()


def _guarded(task: TaskFunction) -> Callable[[Any], Any]:
    """A task that calls exit would end the whole sweep: it fails instead, or is done where it meant that."""

    @functools.wraps(task)
    def guarded(config: Any) -> Any:
        try:
            return task(config)
        except SystemExit as error:
            if error.code in (None, 0):
                return None
            raise RuntimeError(f"the task called exit({error.code!r})") from error

    return guarded


def _is_worth_retrying(error: Exception | None) -> bool:
    """Not what a person wanted, nor what would come out the same."""
    return error is not None and not isinstance(error, ConfigError | Interrupted | Skipped)


def print_bug(error: Exception) -> None:
    """The traceback of an error that is not explained in words: it would be lost on its way to another process."""
    traceback.print_exception(error)
