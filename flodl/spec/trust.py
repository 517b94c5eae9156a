"""What a config tree may name, judged by the name alone: before any process starts and without importing anything.

``_target_`` in a config is code. Every import path in the tree is found here (targets, nested targets, ``_args_``,
and strings that read like import paths, which a callee might import) and names that can never be right are refused.
The last word has flodl.engine.trust on the rank: it looks at the *object* behind the name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from flodl.errors import Problem
from flodl.spec.job import Component

__all__ = ["ALLOWED_PACKAGES", "Reference", "is_under", "problems", "references", "refusal"]

ALLOWED_PACKAGES = (
    "flodl",
    "flodl_launch",
    "timm",
    "torch.nn",
    "torch.optim",
    "torchmetrics",
    "torchvision",
    "transformers",
)
_ALLOWED_ROOTS = frozenset(name.partition(".")[0] for name in ALLOWED_PACKAGES)

# "a.b.c", and "a.b:c" as entry points spell it.
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)+")
# `test.csv` is a file, though `test` is a module of the standard library.
_FILE_SUFFIXES = frozenset("bin csv db gz h5 json jsonl log npy npz parquet pt safetensors tar tsv txt yaml yml zip".split())


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An import path in a config tree. key: its dotted place. is_target: called by us; else a string that a callee might import."""

    key: str
    path: str
    is_target: bool


def references(component: Component, key: str) -> Iterator[Reference]:
    """Every import path of a component: its target first, then those in its arguments, in order. `key` is its dotted place."""
    yield Reference(key=f"{key}._target_", path=component.target, is_target=True)
    yield from _walk(component.args, key)


def _walk(node: object, key: str) -> Iterator[Reference]:
    if isinstance(node, str):
        if _IMPORT_PATH.fullmatch(node):
            yield Reference(key=key, path=node.replace(":", "."), is_target=False)
    elif isinstance(node, Mapping):
        for name, value in cast("Mapping[Any, Any]", node).items():
            if name == "_target_":
                yield Reference(key=f"{key}._target_", path=str(value), is_target=True)
            else:
                yield from _walk(value, f"{key}.{name}")
    elif isinstance(node, (list, tuple)):
        for index, value in enumerate(cast("Iterable[Any]", node)):
            yield from _walk(value, f"{key}[{index}]")


def is_under(path: str, packages: Iterable[str]) -> bool:
    """True where `path` is one of `packages` or lies below one, at a dot: torch.nn.Linear is under torch.nn, torch.nnx is not."""
    return any(path == package or path.startswith(package + ".") for package in packages)


def refusal(reference: Reference, constraint: str) -> Problem:
    """The refusal of `reference`, with the ways out."""
    if reference.is_target:
        remedy = (
            f"allowed are {', '.join(ALLOWED_PACKAGES)} and modules in the project folder (path); "
            f"to trust it, say 'trusted_targets=[{reference.path}]' on the command line"
        )
    else:
        remedy = f"a file of that name is written ./{reference.path}"
    return Problem(key=reference.key, value=reference.path, constraint=constraint, remedy=remedy)


def problems(
    component: Component,
    key: str,
    *,
    trusted: Iterable[str] = (),
    project: Callable[[str], bool] | None = None,
) -> Iterator[Problem]:
    """Names in `component` that cannot be right wherever it is built.

    trusted: further packages or full names. project: tells whether a top-level module lies in the project folder;
    None where that folder is not at hand: then only names that no project can hold are refused here.
    """
    allowed = (*ALLOWED_PACKAGES, *trusted)
    for reference in references(component, key):
        constraint = _constraint(reference, allowed, project)
        if constraint:
            yield refusal(reference, constraint)


def _constraint(reference: Reference, allowed: Iterable[str], project: Callable[[str], bool] | None) -> str:
    """Why the name is refused; "" where it may pass."""
    path = reference.path
    root, _, rest = path.partition(".")
    if not reference.is_target:
        is_file = path.rpartition(".")[2] in _FILE_SUFFIXES
        foreign = root in sys.stdlib_module_names and not is_file and not is_under(path, allowed)
        return "reads like an import path of Python's standard library, which a callee could import" if foreign else ""
    if not rest or not _IMPORT_PATH.fullmatch(path):
        return "is not the dotted path of a class or function"
    if is_under(path, allowed):
        return ""
    if root in sys.stdlib_module_names:
        return "lies in Python's standard library, outside the packages that a config may call"
    if root in _ALLOWED_ROOTS or (project is not None and not project(root)):
        return "lies outside the packages that a config may call"
    return ""
