"""Which run is meant: `run=last`, or a folder; and how a run folder is typed on a command line."""

from __future__ import annotations

from pathlib import Path

from flodl.errors import ConfigError, FlodlError, Problem
from flodl.record.folder import RunFolder, newest_run
from flodl.record.text import short_path as shown
from flodl.record.text import typed

__all__ = ["OUTPUTS", "run_folder", "shown", "typed"]

OUTPUTS = "outputs"


def run_folder(text: object) -> RunFolder:
    """The run that `run=...` names. `last`: the newest under outputs/ of the working folder, a sweep's arms included.

    Raises ConfigError where that is no run folder.
    """
    name = str(text)
    if name == "last":
        try:
            return newest_run(Path.cwd() / OUTPUTS)
        except FlodlError as error:
            raise _refused(name, f"there is no run under {OUTPUTS}/ of this folder") from error
    path = Path(name)
    folder = RunFolder(path.expanduser() if path.parts[:1] == ("~",) else path)
    if not folder.path.is_dir():
        raise _refused(name, "there is no such folder")
    if not folder.spec_path.exists() and not folder.status_path.exists():
        raise _refused(name, f"is no run folder: it holds no {folder.spec_path.name}")
    return folder


def _refused(name: str, constraint: str) -> ConfigError:
    return ConfigError([Problem(key="run", value=name, constraint=constraint,
                                remedy="name a run folder (outputs/<date>/<time>-<tag>), or last")])  # fmt: skip
