"""The floors hold: imports point down, judgement knows no machine, and importing flodl costs next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "hydra", "omegaconf", "fabric", "zmq", "rich", "numpy")
TORCH_ROOMS = {"engine", "models", "datasets", "steps"}


def imported_by(module: str) -> set[str]:
    """Top-level names of what is loaded after importing `module` in a fresh interpreter."""
    code = f"import sys, {module}; print(' '.join(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import statement, at whatever depth of the code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_import_linter_keeps_every_contract() -> None:
    code = "from importlinter.cli import lint_imports_command as lint; lint()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_two_modules_need_each_other_neither_late_nor_for_their_types() -> None:
    graph = grimp.build_graph("flodl", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(needs) > 200
    TopologicalSorter(needs).prepare()  # CycleError names the circle


@pytest.mark.parametrize("module", ["flodl", "flodl.spec", "flodl.decide", "flodl.engine"])
def test_a_room_is_cheap_to_enter(module: str) -> None:
    assert imported_by(module).isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "module", ["flodl.decide.coordinator", "flodl.drive", "flodl.record.folder", "flodl.report.terminal", "flodl.sim"]
)
def test_memory_and_judgement_load_neither_torch_nor_hydra(module: str) -> None:
    assert imported_by(module).isdisjoint({"torch", "hydra", "omegaconf", "fabric", "zmq"})


def test_torch_is_imported_in_its_rooms_only() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "flodl").rglob("*.py"))
        if path.relative_to(ROOT / "flodl").parts[0] not in TORCH_ROOMS
        and any(name.partition(".")[0] == "torch" for name in imports_of(path))
    ]
    assert wrong == []


def test_hydra_is_imported_by_the_door_and_the_builder_only() -> None:
    allowed = {"app.py", "compose.py", "explain.py", "hooks.py", "slips.py", "door/tree.py", "engine/build.py"}
    wrong = [
        str(path.relative_to(ROOT / "flodl"))
        for path in sorted((ROOT / "flodl").rglob("*.py"))
        if str(path.relative_to(ROOT / "flodl")) not in allowed
        and any(name.partition(".")[0] in {"hydra", "omegaconf"} for name in imports_of(path))
    ]
    assert wrong == []


LAUNCH = {"fabric", "paramiko", "flodl_launch", "hydra_plugins"}


def test_only_launch_imports_fabric_and_flodl_never_imports_launch() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "flodl").rglob("*.py"))
        if {name.partition(".")[0] for name in imports_of(path)} & LAUNCH
    ]
    assert wrong == []
