"""A target whose import path leads nowhere: which of its names is wrong, and what was meant.

Files of the project and of flodl are read for it, and nothing is imported. Whatever may be right passes: a module that
makes its names while it runs, or one that is installed. The last word has the rank (flodl.engine.trust).
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from flodl.probe.software import has_module
from flodl.spec.suggest import did_you_mean, nearest
from flodl.spec.trust import ALLOWED_PACKAGES, is_under

__all__ = ["misspelling"]

_PACKAGES = Path(__file__).resolve().parents[2]  # where flodl itself lies
_ROOTS = sorted({name.partition(".")[0] for name in ALLOWED_PACKAGES})
_MAKES_NAMES = frozenset({"__getattr__", "__path__", "exec", "globals", "locals", "vars"})


def misspelling(target: str, folder: Path) -> tuple[str, str] | None:
    """(what is wrong, remedy) where a target's path leads nowhere in the project `folder` or in flodl.

    None where it may be right, or nothing but trust is missing.
    """
    root, *names = target.split(".")
    if root == "flodl":
        return _lost(_PACKAGES / root, root, names, _PACKAGES)
    if is_under(target, ALLOWED_PACKAGES) or root in sys.stdlib_module_names:
        return None
    place = _place(folder, root)
    if place is not None:
        return None if _is_hidden(place, root) else _lost(place, root, names, folder)
    if root in sys.modules or has_module(root):
        return None
    near = nearest(root, [*_modules(folder), *_ROOTS], cutoff=0.7)
    remedy = f"did you mean {near}?" if near else (
        f"it would be {root}.py or {root}/ in this folder; if only the hosts have it, "
        f"say 'trusted_targets=[{target}]' on the command line"
    )  # fmt: skip
    return f"there is no module {root} here", remedy


def _lost(place: Path, module: str, names: list[str], top: Path) -> tuple[str, str] | None:
    """The first of `names` that is not there, going down from `place`, the file or folder of `module`."""
    for name in names:
        is_folder = place.is_dir()
        source = place / "__init__.py" if is_folder else place
        if module == "flodl":  # most of its names come when they are asked for
            bound = dict.fromkeys(sys.modules[module].__all__, True)
        else:
            bound = {} if is_folder and not source.is_file() else _bound(source)
        below = _place(place, name) if is_folder else None
        if bound is None or name in bound or (below is None and hasattr(sys.modules.get(module), name)):
            return None
        if below is None:
            known = [word for word, is_own in bound.items() if is_own and not word.startswith("_")]
            shown = f"{place.relative_to(top).as_posix()}{'/' if is_folder else ''}"
            return f"{shown} has no {name}", did_you_mean(name, [*known, *(_modules(place) if is_folder else ())])
        place, module = below, f"{module}.{name}"
    return None


def _place(folder: Path, name: str) -> Path | None:
    """The file or folder that the module `name` is in `folder`, in the order of Python's own search."""
    package, source = folder / name, folder / f"{name}.py"
    if (package / "__init__.py").is_file():
        return package
    if source.is_file():
        return source
    return next(iter(sorted(folder.glob(f"{name}.*so"))), package if package.is_dir() else None)


def _is_hidden(place: Path, root: str) -> bool:
    """True where an installed package goes before a mere folder of that name."""
    if not place.is_dir() or (place / "__init__.py").is_file():
        return False
    spec = find_spec(root) if has_module(root) else None
    return spec is not None and spec.has_location


def _modules(folder: Path) -> Iterator[str]:
    for entry in folder.iterdir():
        is_module = entry.suffix == ".py" or (entry.is_dir() and any(entry.glob("*.py")))
        if is_module and entry.stem.isidentifier() and not entry.stem.startswith("_"):
            yield entry.stem


def _bound(source: Path) -> dict[str, bool] | None:
    """Top-level names of a file -> whether they are the project's own; None where they cannot be told by reading it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of a project's style nothing is said here
            tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # what is wrong with it, its import will say
        return None
    bound = dict(_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _MAKES_NAMES:
            return None
        if isinstance(node, ast.Attribute) and node.attr == "modules" and ast.unparse(node.value).endswith("sys"):
            return None
        if isinstance(node, ast.Global):
            bound |= dict.fromkeys(node.names, True)
    return None if _MAKES_NAMES & bound.keys() or "*" in bound else bound


def _names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield child.name, True
            case ast.Import():
                yield from ((alias.asname or alias.name.partition(".")[0], False) for alias in child.names)
            case ast.ImportFrom():
                yield from ((alias.asname or alias.name, child.level > 0) for alias in child.names)
            case ast.Name(ctx=ast.Store()):
                yield child.id, False
            case ast.Lambda():
                pass
            case _:
                yield from _names(child)
