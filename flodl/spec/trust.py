"""What a config tree may name, judged by the name alone: before any process starts and without importing anything.

``_target_`` in a config is code. Every import path in the tree is found here (targets, nested targets, ``_args_``,
and strings that read like import paths, which a callee might import) and names that can never be right are refused.
The last word has flodl.engine.trust on the rank: it looks at the *object* behind the name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from flodl.errors import Problem
from flodl.spec.component import Component
from flodl.spec.tree import strings

__all__ = ["ALLOWED_PACKAGES", "Reference", "as_reference", "is_under", "problems", "references", "refusal"]

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
_FILE_SUFFIX = re.compile(
    r".*\.(bin|csv|db|gz|h5|json|jsonl|log|npy|npz|parquet|pt|safetensors|tar|tsv|txt|ya?ml|zip)", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An import path in a config tree, at the dotted place `key`.

    is_target: it is what gets called; else a string that the callee might import.
    """

    key: str
    path: str
    is_target: bool


def as_reference(key: str, text: str) -> Reference | None:
    """The string `text` at the place `key` as a reference; None for a string that is no import path."""
    if key.endswith("._target_"):
        return Reference(key=key, path=text, is_target=True)
    if _IMPORT_PATH.fullmatch(text):
        return Reference(key=key, path=text.replace(":", "."), is_target=False)
    return None


def references(component: Component, key: str) -> Iterator[Reference]:
    """Every import path of the component at the place `key`: its target, then those in its arguments, in order."""
    for at, text in strings({"_target_": component.target, **component.args}, key):
        reference = as_reference(at, text)
        if reference is not None:
            yield reference


def is_under(path: str, packages: Iterable[str]) -> bool:
    """True where `path` is one of `packages` or lies below one, at a dot: torch.nnx is not under torch.nn."""
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
    misspelt: Callable[[str], tuple[str, str] | None] | None = None,
) -> Iterator[Problem]:
    """Names in the component at the place `key` that cannot be right wherever it is built.

    trusted: further packages or full names. project: tells whether a top-level module lies in the project folder;
    None where that folder is not at hand: then only names that no project can hold are refused here. misspelt: what is
    wrong with a target that leads nowhere, and what to do: to trust it would not help.
    """
    allowed = (*ALLOWED_PACKAGES, *trusted)
    for reference in references(component, key):
        judge = _target_constraint if reference.is_target else _string_constraint
        constraint = "" if is_under(reference.path, allowed) else judge(reference.path, project)
        slip = misspelt(reference.path) if misspelt is not None and _is_readable(reference, trusted) else None
        if slip is not None:
            yield Problem(key=reference.key, value=reference.path, constraint=slip[0], remedy=slip[1])
        elif constraint:
            yield refusal(reference, constraint)


def _is_readable(reference: Reference, trusted: Iterable[str]) -> bool:
    """True where the spelling of a reference matters: a target of which nobody has said that it is right."""
    is_path = _IMPORT_PATH.fullmatch(reference.path) is not None
    return reference.is_target and is_path and not is_under(reference.path, trusted)


def _target_constraint(path: str, project: Callable[[str], bool] | None) -> str:
    """Why a target outside the allowed packages is refused; "" where it may lie in the project."""
    root = path.partition(".")[0]
    if not _IMPORT_PATH.fullmatch(path):
        return "is not the dotted path of a class or function"
    if root in sys.stdlib_module_names:
        return "lies in Python's standard library, outside the packages that a config may call"
    if root in _ALLOWED_ROOTS or (project is not None and not project(root)):
        return "lies outside the packages that a config may call"
    return ""


def _string_constraint(path: str, project: Callable[[str], bool] | None) -> str:
    """Why a string outside the allowed packages is refused; "" for a file name and what only a rank can judge."""
    if path.partition(".")[0] not in sys.stdlib_module_names or _FILE_SUFFIX.fullmatch(path):
        return ""
    return "reads like an import path of Python's standard library, which a callee could import"
