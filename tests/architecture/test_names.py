"""Public names are listed (ruff sorts them); file names of a run are spelled in one place; no room is a drawer."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from flodl.record.folder import RunFolder

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "flodl").rglob("*.py"))
DRAWERS = {"utils", "util", "helpers", "common", "base", "manager", "misc"}


def dunder_all(tree: ast.Module) -> list[str] | None:
    """What a module lists in __all__; None where it lists nothing."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return None


def public_names(tree: ast.Module) -> set[str]:
    """Classes and functions that a module defines without a leading underscore."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")}


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in MODULES if p.name not in {"__init__.py", "__main__.py"}], ids=short)
def test_every_public_class_and_function_is_listed(path: Path) -> None:
    tree = ast.parse(path.read_text())
    listed = dunder_all(tree)
    assert listed is not None, f"{short(path)} has no __all__"
    assert public_names(tree) <= set(listed), f"{short(path)}: public, but not in __all__"


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "__main__.py"], ids=short)
def test_every_listed_name_is_there(path: Path) -> None:
    listed = dunder_all(ast.parse(path.read_text())) or []
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert [missing for missing in listed if not hasattr(module, missing)] == []


@pytest.mark.parametrize("path", [p for p in MODULES if p.stat().st_size], ids=short)
def test_every_module_says_at_its_door_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{short(path)} has no docstring"


def test_the_names_of_a_runs_files_are_spelled_in_the_run_folder_only() -> None:
    """Those of what lies in its checkpoints: beside it."""
    folder = RunFolder("x")
    names = {p.name for p in vars(folder).values() if isinstance(p, Path)} - {"x", "ranks", "checkpoints"}
    assert len(names) >= 7
    found = [
        f"{short(path)}:{node.lineno} {node.value!r}"
        for path in MODULES
        if path not in {ROOT / "flodl/record/folder.py", ROOT / "flodl/record/bundle_names.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rpartition("/")[2] in names
    ]
    assert found == []


def test_no_module_is_a_drawer() -> None:
    assert [short(p) for p in MODULES if p.stem in DRAWERS or p.parent.name in DRAWERS] == []


def test_packages_are_at_most_two_deep() -> None:
    deep = [short(p) for p in MODULES if len(p.relative_to(ROOT / "flodl").parts) > 3]
    assert deep == []
