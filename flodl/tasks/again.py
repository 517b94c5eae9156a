"""The job of a run that is there already, with what was typed beside it: for task=resume and task=eval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from flodl.errors import ConfigError, Problem
from flodl.record.choices import read_choices
from flodl.spec.codec import decode_job, job_to_plain, load_spec
from flodl.spec.job import JobSpec
from flodl.tasks.which import run_folder

__all__ = ["again", "choices"]

NOT_THE_JOBS = ("task", "run", "hydra", "json")
MANY_GROUPS = ("experiment", "debug", "local")
SAID_ANEW = ("dry_run", "detach")  # of launch: how the command is carried out, which is no property of the run


def again(tree: Mapping[str, Any], typed: Iterable[str]) -> tuple[JobSpec, Path]:
    """The job of `run`, and its folder. tree: as composed now; typed: overrides, of which each key is taken from there.

    Raises ConfigError where there is no such run, or an override cannot be laid over a job.
    """
    folder = run_folder(tree["run"])
    plain = job_to_plain(load_spec(folder.spec_path))
    problems: list[Problem] = []
    for text in typed:
        key = text.lstrip("+~").partition("=")[0].partition("@")[0]
        top = key.partition(".")[0].partition("/")[0]
        if top in MANY_GROUPS:
            problems.append(Problem(key=key, constraint="speaks for several groups, and the job is that of the run",
                                    remedy="name the keys themselves"))  # fmt: skip
        elif top not in NOT_THE_JOBS:
            _lay_over(plain, tree, key.split("."))
    if problems:
        raise ConfigError(problems)
    plain["launch"] = {**plain["launch"], **{key: tree["launch"][key] for key in SAID_ANEW}}
    plain["trusted_targets"] = tree["trusted_targets"]
    return decode_job(plain), folder.path


def choices(arguments: Iterable[str]) -> list[str]:
    """The group choices of a run of which keys are typed beside task=resume or task=eval: they are to be known."""
    typed: dict[str, str] = {}
    for text in arguments:
        key, _, value = text.lstrip("+~").partition("=")
        typed[key] = value
    if typed.get("task") not in ("resume", "eval"):
        return []
    try:
        found = read_choices(run_folder(typed.get("run", "last")).choices_path).chosen
    except ConfigError:
        return []  # whoever needs the run says what is wrong with it
    groups = sorted({key.partition(".")[0] for key in typed if "." in key} - {"hydra", *MANY_GROUPS} - typed.keys())
    return [f"{group}={found[group]}" for group in groups if group in found]


def _lay_over(plain: dict[str, Any], tree: Mapping[str, Any], path: list[str]) -> None:
    """Take what is at `path` of the tree; what is no longer there goes."""
    *parents, last = path
    there, here = cast("Any", tree), cast("Any", plain)
    for name in parents:
        there = there.get(name, {}) if isinstance(there, Mapping) else {}
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
    if isinstance(there, Mapping) and last in there:
        here[last] = there[last]
    else:
        here.pop(last, None)
