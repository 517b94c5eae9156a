"""What of a project is pushed: what git would take up, and never what a host has made for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flodl_launch.files import project_files

LEFT = ["outputs/run/spec.json", "envs/sm61/bin/python", "envs/sm61/lib/torch.py"]
PUSHED = [".gitignore", "mine.py", "new $(x) 'ü'\n.py", "pkg/outputs/__init__.py"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a hostile sort; build/ is ignored by git."""
    for name in (*LEFT, *PUSHED, "build/big.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("build/\n")
    return tmp_path


def test_in_a_repository_git_decides_but_for_what_hosts_and_runs_make(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "mine.py", "envs/sm61/bin/python"], cwd=project, check=True)
    assert project_files(project) == sorted(PUSHED)


def test_without_a_repository_all_files_but_environments_go(project: Path) -> None:
    assert project_files(project) == sorted([*PUSHED, "build/big.bin"])
