"""With what a run was made: packages, interpreter, driver, and the state of the project's own files."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

import msgspec

__all__ = ["PACKAGES", "Versions", "versions"]

PACKAGES = (
    "fabric",
    "flodl",
    "hydra-core",
    "msgspec",
    "numpy",
    "omegaconf",
    "pyzmq",
    "safetensors",
    "torch",
)
GIT_SECONDS = 5.0
_DRIVER = Path("/proc/driver/nvidia/version")


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """packages: name -> version of what is installed. git_commit: of the project ("" outside git).

    git_diff_sha256: of the difference between that commit and the tracked files ("" where there is none).
    driver: NVIDIA's, "" without one. ranks: rank -> what that rank said of its own software.
    """

    python: str = ""
    platform: str = ""
    packages: dict[str, str] = {}
    git_commit: str = ""
    git_diff_sha256: str = ""
    driver: str = ""
    ranks: dict[int, dict[str, str]] = {}


def versions(project: Path) -> Versions:
    """The versions of this interpreter and of the project folder. Never raises: what cannot be told is ""."""
    diff = _git(project, "diff", "HEAD", "--no-ext-diff", "--binary")
    return Versions(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages={name: found for name in PACKAGES if (found := _package(name))},
        git_commit=_git(project, "rev-parse", "HEAD").decode("ascii", "replace").strip(),
        git_diff_sha256=hashlib.sha256(diff).hexdigest() if diff else "",
        driver=_driver(),
    )


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _git(project: Path, *arguments: str) -> bytes:
    """Standard output of a git command in the project; b"" without git, outside a repository or after 5 s."""
    command = ["git", "--no-optional-locks", "-C", str(project), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


def _driver() -> str:
    try:
        found = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text())
    except OSError:
        return ""
    return found.group() if found else ""
