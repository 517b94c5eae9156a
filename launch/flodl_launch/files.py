"""Which files of a project are pushed to hosts: what git would take up, without what runs have left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["project_files"]

LEFT_HERE = ("outputs", "envs")  # what runs and task=setup make; no .gitignore may know of them
SKIPPED = frozenset({".git", "__pycache__", ".venv", "venv", "envs", "node_modules", ".mypy_cache", ".pytest_cache"})


def project_files(project: Path) -> list[str]:
    """Names relative to the project folder, sorted. In a git repository .gitignore decides, elsewhere a short list."""
    found = _of_git(project)
    names = _of_tree(project) if found is None else found
    kept = (name for name in names if name.split("/")[0] not in LEFT_HERE)
    return sorted(name for name in kept if (project / name).is_symlink() or (project / name).is_file())


def _of_git(project: Path) -> list[str] | None:
    words = ["git", "-C", str(project), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))


def _of_tree(project: Path) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(project):
        folders[:] = [name for name in folders if name not in SKIPPED]
        found += [str((Path(folder) / name).relative_to(project)) for name in files]
    return found
