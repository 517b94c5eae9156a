"""The shipped configuration, composed as the command line does it, without a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from flodl import hooks
from flodl.compose import job_of, resolve
from flodl.spec.job import JobSpec
from flodl.tasks import TASKS

CONF = Path(__file__).parents[2] / "conf"
TASK_KEYS = ("task", *(name for task in TASKS.values() for name in task.arguments))


@contextmanager
def shipped() -> Iterator[None]:
    """Within it `job` composes from conf/; files are read once."""
    GlobalHydra.instance().clear()
    hooks.register()
    arguments = {k: v for k, v in hooks.main_arguments().items() if k == "version_base"}
    with initialize_config_dir(str(CONF), job_name="flodl", **arguments):
        yield


def job(overrides: Sequence[str] = ()) -> JobSpec:
    """What a command line with these overrides means. Raises what the command line would explain."""
    return _job(tuple(overrides))


@cache
def _job(overrides: tuple[str, ...]) -> JobSpec:
    return job_of(resolve(compose("config", list(overrides))), TASK_KEYS)
