"""What flodl hangs into Hydra: two resolvers, the search path of the working folder, and exclusive run folders.

Everything that differs between Hydra's versions is here too, so that `app` reads the same for all of them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.resolvers import oc

from flodl.errors import Problem
from flodl.spec.environment import looks_secret, secret_problems
from flodl.tasks import TASKS

__all__ = [
    "REFUSED",
    "Refused",
    "RunFolder",
    "apart",
    "composed",
    "config_folder",
    "main_arguments",
    "own_choice",
    "primary_config",
    "register",
    "shadowed_choices",
]

REFUSED = "<refused:"  # stands where a config asked for a secret's value; `flodl.compose` turns it into an error
TRIES = 100


def config_folder() -> Path:
    """The folder of the shipped choices: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def main_arguments() -> dict[str, Any]:
    """Arguments of hydra.main. 1.3 warns where version_base is missing; 1.4 where it is given, and it wants to know
    which code a config may name in Hydra's own part (what a job names is `flodl.spec.trust`'s business)."""
    if version("hydra-core").startswith("1.3."):
        return {"version_base": "1.3"}
    return {"execution_whitelist": ["flodl.hooks.*", "hydra_plugins.flodl_ssh.*", "logging.*"]}


def primary_config(shipped: Path) -> str:
    """Name of the primary config: `config`, or a copy of it whose default cluster is the one that FLODL_CLUSTER names.

    (Hydra 1.3 would resolve an environment variable in a defaults list, 1.4 does not.)
    """
    cluster = os.environ.get("FLODL_CLUSTER")
    return _with_cluster(shipped, cluster) if cluster else "config"


@cache
def _with_cluster(shipped: Path, cluster: str) -> str:
    tree = OmegaConf.load(shipped / "config.yaml")
    for entry in tree.defaults:
        if "cluster" in entry:
            entry.cluster = cluster
    name = f"config_{cluster.encode().hex()}"
    ConfigStore.instance().store(name=name, node=tree)
    return name


@contextmanager
def apart() -> Iterator[None]:
    """Hydra for our tree, to compose from; one that a program runs under itself is there again afterwards."""
    known = GlobalHydra.instance()
    before, known.hydra = known.hydra, None
    arguments = {key: value for key, value in main_arguments().items() if key == "version_base"}
    try:
        with initialize_config_dir(str(config_folder()), job_name="flodl", **arguments):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def composed(words: Sequence[str]) -> DictConfig:
    """The tree of these command line words, whatever Hydra is at work."""
    with apart():
        return compose(primary_config(config_folder()), list(words))


def register() -> None:
    """Make resolvers and plugins known. Idempotent; to be called before anything is composed."""
    is_old = version("omegaconf").startswith(("2.2.", "2.3."))  # where register_resolver is another, older function
    resolver: Callable[..., None] = OmegaConf.register_new_resolver if is_old else OmegaConf.register_resolver
    resolver("flodl.tag", _tag.current, replace=True)
    resolver("oc.env", _env, replace=True)
    Plugins.instance().register(_WorkingFolder)


def shadowed_choices(shipped: Path, own: Path) -> list[str]:
    """Files of the working folder's conf that are never read, because a shipped choice has the same name."""
    if not own.is_dir() or own.resolve() == shipped.resolve():
        return []
    groups = {entry.name for entry in shipped.iterdir() if entry.is_dir()}
    found = (path.relative_to(own) for path in own.rglob("*.yaml"))
    return sorted(str(path) for path in found if path.parts[0] in groups and (shipped / path).is_file())


def own_choice(group: str, choice: str) -> Path | None:
    """The working folder's file of a choice; None where the choice is a shipped one, or nobody's."""
    own, shipped = (root / group / f"{choice}.yaml" for root in (Path.cwd() / "conf", config_folder()))
    return own if own.is_file() and not shipped.is_file() else None


class Refused(BaseException):
    """A sweep may not begin. Hydra makes a mere warning of any `Exception` that a callback raises."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)


class RunFolder(Callback):
    """Creates the folder of a run or a sweep exclusively; a name that is taken gets another random tag.

    A folder that the user named (hydra.run.dir=...) may exist: whether it holds a run is asked later, by the record.
    A dry run, a task that is no run and a config that holds a password (it is refused) leave no folder at all.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        if config.launch.get("dry_run") is True or not _is_run(config.task) or _secrets(config):
            with read_write(config), open_dict(config):
                config.hydra.run.dir = config.hydra.runtime.cwd
                config.hydra.output_subdir = None
        else:
            _claim(config.hydra.run)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if problems := _secrets(config):  # each arm would refuse it, when Hydra has written it down
            raise Refused(problems)
        _claim(config.hydra.sweep)


class _Tag:
    """The random end of this process's run folder."""

    def __init__(self) -> None:
        self.text = secrets.token_hex(2)

    def current(self) -> str:
        return self.text

    def draw(self) -> None:
        """Another tag than the present one."""
        before = self.text
        while self.text == before:
            self.text = secrets.token_hex(2)


_tag = _Tag()


class _WorkingFolder(SearchPathPlugin):
    """./conf of the folder where the command was typed, after the shipped choices: it adds, it does not replace.

    (A project may have a Hydra tree of its own there, whose config.yaml must not become ours.)
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        own = Path.cwd() / "conf"
        if own.is_dir() and own.resolve() != config_folder().resolve():
            search_path.append("working folder", f"file://{own}")


def _is_run(task: object) -> bool:
    """True where the task leaves a run folder; a task that does not exist is refused later."""
    return task in TASKS and TASKS[str(task)].is_run


def _secrets(config: DictConfig) -> list[Problem]:
    """What of a composed config no file may hold; what is typed for a task alone is no part of it."""
    name = None if OmegaConf.is_missing(config, "task") else config.get("task")
    arguments = TASKS[str(name)].arguments if name in TASKS else ()
    tree = OmegaConf.to_container(config, resolve=False)
    named = {str(key): value for key, value in tree.items()} if isinstance(tree, dict) else {}
    return list(secret_problems({key: value for key, value in named.items() if key not in arguments}))


def _claim(node: DictConfig) -> None:
    for _ in range(TRIES):
        folder = Path(str(node.dir))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            _tag.draw()
            if str(node.dir) == str(folder):  # the user's own name holds no tag
                return
        except OSError:  # a callback's error is only a warning; Hydra makes the folder next, and that one is told
            return
        else:
            return


def _env(name: str, *default: Any) -> Any:
    """oc.env, but for secrets: what a config resolves to is written into files."""
    return f"{REFUSED}{name}>" if looks_secret(name) else oc.env(name, *default)
