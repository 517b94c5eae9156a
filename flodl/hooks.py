"""What flodl hangs into Hydra: two resolvers, the search path of the working folder, and exclusive run folders.

Everything that differs between Hydra's versions is here too, so that `app` reads the same for all of them.
"""

from __future__ import annotations

import secrets
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc

from flodl.spec.environment import looks_secret

__all__ = ["REFUSED", "RunFolder", "config_folder", "register", "shadowed_choices", "version_base"]

REFUSED = "<refused:"  # stands where a config asked for a secret's value; `flodl.compose` turns it into an error
TRIES = 100


def config_folder() -> Path:
    """The folder of the shipped choices: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def version_base() -> dict[str, str]:
    """Arguments for hydra.main: 1.3 warns when version_base is missing, later ones when it is given."""
    return {"version_base": "1.3"} if version("hydra-core").startswith("1.3.") else {}


def register() -> None:
    """Make resolvers and plugins known. Idempotent; to be called before anything is composed."""
    OmegaConf.register_new_resolver("flodl.tag", _tag.current, replace=True)
    OmegaConf.register_new_resolver("oc.env", _env, replace=True)
    Plugins.instance().register(_WorkingFolder)


def shadowed_choices(shipped: Path, own: Path) -> list[str]:
    """Files of the working folder's conf that are never read, because a shipped choice has the same name."""
    if not own.is_dir() or own.resolve() == shipped.resolve():
        return []
    groups = {entry.name for entry in shipped.iterdir() if entry.is_dir()}
    found = (path.relative_to(own) for path in own.rglob("*.yaml"))
    return sorted(str(path) for path in found if path.parts[0] in groups and (shipped / path).is_file())


class RunFolder(Callback):
    """Creates the folder of a run or a sweep exclusively; a name that is taken gets another random tag.

    A folder that the user named (hydra.run.dir=...) may exist: whether it holds a run is asked later, by the record.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        _claim(config.hydra.run)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        _claim(config.hydra.sweep)


class _Tag:
    """The random end of this process's run folder."""

    def __init__(self) -> None:
        self.text = secrets.token_hex(2)

    def current(self) -> str:
        return self.text

    def draw(self) -> None:
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


def _claim(node: DictConfig) -> None:
    for _ in range(TRIES):
        folder = Path(str(node.dir))
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir()
        except FileExistsError:
            _tag.draw()
            if str(node.dir) == str(folder):  # the user's own name holds no tag
                return
        else:
            return


def _env(name: str, *default: Any) -> Any:
    """oc.env, but for secrets: what a config resolves to is written into files."""
    return f"{REFUSED}{name}>" if looks_secret(name) else oc.env(name, *default)
