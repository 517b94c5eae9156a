"""The user's own modules: which of them a job names, and whether a host has them. Nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from flodl.probe.software import has_module
from flodl.spec.job import JobSpec
from flodl.spec.trust import ALLOWED_PACKAGES, is_under, references

__all__ = ["missing_modules", "named_modules"]

_OTHERS = frozenset({"flodl", "flodl_launch", "torch"})  # looked at by rules of their own


def named_modules(job: JobSpec, folder: Path) -> tuple[str, ...]:
    """Modules that the job's targets lie in: of the project as deep as its `folder` shows it, else packages alone."""
    allowed = (*ALLOWED_PACKAGES, *job.trusted_targets)
    found: dict[str, None] = {}
    for key, component in job.components.items():
        for reference in references(component, key):
            root, dot, _ = reference.path.partition(".")
            if not (reference.is_target and dot) or root in _OTHERS:  # without a dot it is a slip, told as one
                continue
            found[root if is_under(reference.path, allowed) else _module(reference.path, folder)] = None
    return tuple(found)


def missing_modules(names: Iterable[str], path: str) -> tuple[str, ...]:
    """Those that a rank in the folder `path` would not find."""
    places = [path or ".", *sys.path]
    return tuple(name for name in names if not _is_there(name, places))


def _module(target: str, folder: Path) -> str:
    """The longest part of a target that is a module in the folder; its first name where none is."""
    names = target.split(".")
    for end in range(len(names) - 1, 1, -1):
        place = folder.joinpath(*names[:end])
        if place.is_dir() or place.with_name(f"{place.name}.py").is_file():
            return ".".join(names[:end])
    return names[0]


def _is_there(name: str, places: Iterable[str]) -> bool:
    first, *below = name.split(".")
    spec = PathFinder.find_spec(first, list(places))
    if spec is None:
        return has_module(first)  # brought in by other means: built in, or by an import hook of an editable install
    for part in below:
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or ()))
        if spec is None:
            return False
    return True
