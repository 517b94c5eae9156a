"""What a program says, laid over the tree that Hydra composes from conf/: one way to a JobSpec, the command line's own.

Values go into the tree as they are, before it is resolved: a shipped model still follows the data set that is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf, open_dict

from flodl import hooks
from flodl.compose import check_trust, job_of, refuse_passwords, refuse_sweep, resolve, typed_trust
from flodl.errors import ConfigError, Problem
from flodl.further import explained
from flodl.spec.job import JobSpec

__all__ = ["job_from"]

_TRUST = "trusted_targets"
_COMMANDS = ("task", "hydra", "launch.dry_run", "launch.detach", "debug.inprocess")


def job_from(words: Sequence[str], laid: Mapping[str, Any]) -> JobSpec:
    """The job of these command line words with these values laid over it. Raises ConfigError with every problem.

    Trust is what the program itself says, in its words or among its values: a file that brings its own is refused.
    """
    _refuse_commands(words)
    said = typed_trust(words)
    folder = hooks.config_folder()
    hooks.register()
    try:
        with hooks.apart():
            config = _apart_from_hydra(compose(hooks.primary_config(folder), list(words), return_hydra_config=True))
            for key in filter(_TRUST.__ne__, laid):
                OmegaConf.update(config, key, laid[key], merge=False, force_add=True)
            tree = resolve(config)
    except Exception as error:
        groups = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        raise explained(error, groups, words) or error from error
    if tree[_TRUST] == list(said):
        said = tuple(dict.fromkeys((*said, *laid.get(_TRUST, ()))))
        tree[_TRUST] = list(said)
    refuse_passwords(tree, ("task",))
    job = job_of(tree, ("task",))
    check_trust(job, said, Path.cwd())
    return job


def _refuse_commands(words: Sequence[str]) -> None:
    """Words that say how a command is carried out mean nothing to a program."""
    keys = [text.lstrip("+~").partition("=")[0] for text in words]
    problems = [
        Problem(key=key, constraint="is for the command line: a program carries its run out itself",
                remedy="leave it out; save_path names the run folder")
        for key in keys if any(key == name or key.startswith(f"{name}.") for name in _COMMANDS)
    ]  # fmt: skip
    if problems:
        raise ConfigError(problems)


def _apart_from_hydra(config: DictConfig) -> DictConfig:
    """The tree without Hydra's own part, which says whether somebody asked for a sweep. Raises ConfigError."""
    refuse_sweep(config.hydra, "a program runs one job at a time: loop over the values in it, or type the sweep: "
                 "python -m flodl -m ...")  # fmt: skip
    with open_dict(config):
        del config["hydra"]
    return config
