"""From Hydra's composed tree to a JobSpec: resolved once, here, and plain data from then on.

Refused together, before the codec looks at anything: values that are missing (``???``), interpolations that resolve
to nothing or to an interpolation again, and secrets that a config would write into files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from flodl.errors import ConfigError, Problem
from flodl.hooks import REFUSED
from flodl.probe.misspelt import misspelling
from flodl.spec.codec import decode_job
from flodl.spec.environment import address_problems
from flodl.spec.job import JobSpec
from flodl.spec.trust import problems as trust_problems

__all__ = ["check_trust", "job_of", "refuse_passwords", "refuse_sweep", "resolve", "typed_trust"]

_ASKED_OF_DATA = re.compile(r"key 'dataset\.(\w+)' not found")


def resolve(config: DictConfig) -> dict[str, Any]:
    """The whole tree as plain data. Raises ConfigError with every key that has no proper value."""
    problems: list[Problem] = []
    tree = _resolve(config, "", problems)
    if problems:
        raise ConfigError(problems)
    return tree


def job_of(tree: dict[str, Any], not_ours: Iterable[str]) -> JobSpec:
    """The job in a resolved tree. not_ours: top-level keys of the task, which no job has."""
    return decode_job({key: value for key, value in tree.items() if key not in set(not_ours)})


def typed_trust(arguments: Sequence[str]) -> tuple[str, ...]:
    """What trusted_targets the user typed, as composed. Raises ConfigError where it is swept or no list of names."""
    typed = [text for text in arguments if text.lstrip("+").startswith("trusted_targets=")]
    if not typed:
        return ()
    override = OverridesParser.create().parse_overrides([typed[-1].lstrip("+")])[0]
    value = None if override.is_sweep_override() else override.value()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError([Problem(key="trusted_targets", value=typed[-1].partition("=")[2],
                                   constraint="must be one list of names",
                                   remedy="trusted_targets=[my_package,other.module]")])  # fmt: skip
    return tuple(str(name) for name in value)


def check_trust(job: JobSpec, typed: tuple[str, ...], folder: Path) -> None:
    """Refuse names that a config may not call. typed: `typed_trust`. folder: where the project's modules lie.

    Trust comes from the person at the keyboard only: a file that brings its own is refused.
    """
    if job.trusted_targets != typed:
        names = ",".join(job.trusted_targets)
        raise ConfigError([Problem(key="trusted_targets", value=f"[{names}]",
                                   constraint="comes from a file, and only the command line may extend trust",
                                   remedy=f"if you mean it, type trusted_targets=[{names}]")])  # fmt: skip
    project, misspelt = _project(job, folder), partial(misspelling, folder=folder)
    problems = [problem for key, made in job.components.items()
                for problem in trust_problems(made, key, trusted=typed, project=project,
                                              misspelt=None if project is None else misspelt)]  # fmt: skip
    if problems:
        raise ConfigError(problems)


def refuse_passwords(tree: dict[str, Any], not_ours: Iterable[str]) -> None:
    """Refuse addresses that hold a password: a job goes into files and to its loggers. not_ours: as in `job_of`."""
    problems = list(address_problems({key: value for key, value in tree.items() if key not in set(not_ours)}))
    if problems:
        raise ConfigError(problems)


def refuse_sweep(hydra: Any, remedy: str) -> None:
    """Refuse a sweep's arms where one job is composed: they would be ignored. hydra: Hydra's own part of the tree."""
    params = hydra.sweeper.get("params")
    if params:
        swept = OmegaConf.to_container(params, resolve=False)
        told = ", ".join(f"{key}={value}" for key, value in swept.items()) if isinstance(swept, dict) else str(swept)
        experiment = hydra.runtime.choices.get("experiment")
        key, value = ("experiment", str(experiment)) if experiment else ("hydra.sweeper.params", "")
        raise ConfigError([Problem(key=key, value=value, constraint=f"is a sweep over {told}", remedy=remedy)])


def _project(job: JobSpec, folder: Path) -> Callable[[str], bool] | None:
    """Tells whether a top-level module lies in the project folder; None where a host has a folder of its own."""
    if any(host.path is not None for host in job.cluster.workers):
        return None
    return lambda root: (folder / root).is_dir() or (folder / f"{root}.py").is_file()


def _resolve(node: DictConfig | ListConfig, key: str, problems: list[Problem]) -> Any:
    if isinstance(node, ListConfig):
        return [_item(node, i, f"{key}[{i}]", problems) for i in range(len(node))]
    return {name: _item(node, name, f"{key}.{name}" if key else str(name), problems) for name in node}


def _item(node: DictConfig | ListConfig, name: Any, key: str, problems: list[Problem]) -> Any:
    try:
        value = node[name]
    except MissingMandatoryValue:
        problems.append(Problem(key=key, value="???", constraint="has no value", remedy=f"give one: {key}=..."))
        return None
    except OmegaConfBaseException as error:
        said = str(error).splitlines()[0]
        problems.append(Problem(key=key, constraint=f"cannot be resolved: {said}", remedy=_remedy(key, said)))
        return None
    if isinstance(value, DictConfig | ListConfig):
        return _resolve(value, key, problems)
    if isinstance(value, str):
        problems.extend(_bad_text(value, key))
    return value


def _remedy(key: str, said: str) -> str:
    """The way out where a model asks its data set for what only other kinds of data have."""
    wanted = _ASKED_OF_DATA.search(said)
    if wanted is None or not key.startswith("model."):
        return ""
    return f"choose a model that fits the data set, or state it: +dataset.{wanted[1]}=..., {key}=..."


def _bad_text(text: str, key: str) -> list[Problem]:
    if REFUSED in text:
        name = text.partition(REFUSED)[2].partition(">")[0]
        return [Problem(key=key, value=f"${{oc.env:{name}}}", constraint="asks for a secret, and a config is written "
                        "to files", remedy=f"export it and name it: cluster.env_pass=[{name}]")]  # fmt: skip
    if "${" in text:
        return [Problem(key=key, value=text, constraint="still holds ${ after resolving",
                        remedy="name the value itself")]  # fmt: skip
    return []
