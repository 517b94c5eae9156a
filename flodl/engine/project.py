"""The user's project on this host: which of its files this rank really runs, and which versions of them.

A rank has imported what model, data set and step needed. Those files are named and hashed, and all ranks are compared
before the first window: a host with an old copy would train another model than the others, silently.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from flodl.engine.trust import Trust

__all__ = ["project_files"]

HASH_LETTERS = 16
GONE = "gone"


def project_files(project: str | Path, modules: Iterable[ModuleType] | None = None) -> dict[str, str]:
    """Every imported source file of the project folder: its name there -> a hash of its bytes.

    modules: what was imported; all of this process where it is not told. "" is the working folder, as for `Trust`.
    """
    trust = Trust(project=project)
    loaded = list(sys.modules.values()) if modules is None else modules
    files = {getattr(module, "__file__", None) for module in loaded}
    owned = {Path(file).resolve() for file in files if _may_be_owned(file) and trust.owns(file)}
    return {_name(file, trust.project): _hash(file) for file in sorted(owned)}


def _may_be_owned(file: object) -> TypeGuard[str]:
    """Most modules are libraries: that is seen without asking the file system."""
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    return "/site-packages/" not in file and "/dist-packages/" not in file


def _name(file: Path, project: Path) -> str:
    return file.relative_to(project).as_posix().encode("utf-8", "backslashreplace").decode()


def _hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:HASH_LETTERS]
    except OSError:
        return GONE
