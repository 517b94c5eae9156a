"""Files for hosts without a way to a registry: downloaded here, pushed over the standard input of a command there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from flodl.errors import TaskFindings
from flodl.tasks.hosts import Host, ask

__all__ = ["fetch_wheel", "push"]

PUSH = 'set -e; umask 077; mkdir -p "$1"; d=$(mktemp -d "$1/.flodl-XXXXXXXX"); cat > "$d/$2"; echo "flodl-at: $d"'
CLEAN_SECONDS = 30.0


def fetch_wheel(asked: str, place: Path) -> Path:
    """Download one wheel of the registry with this interpreter's pip. Raises TaskFindings with pip's own words."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps",
               "--only-binary=:all:", "--dest", str(place), asked]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(place.glob("*.whl"))
    if done.returncode != 0 or not found:
        raise TaskFindings(f"pip cannot download {asked} here either: {' '.join(done.stderr.splitlines()[-2:])}")
    return found[0]


@contextmanager
def push(host: Host, file: Path, folder: str) -> Iterator[str]:
    """Put a file into a fresh folder of its own under `folder` on the host; yields its path there, and removes it."""
    lines: list[str] = []
    code = host.run(["sh", "-c", PUSH, "sh", folder, file.name], given=file.read_bytes(), on_line=lines.append)
    places = [line.removeprefix("flodl-at: ") for line in lines if line.startswith("flodl-at: ")]
    if code != 0 or not places:
        raise TaskFindings(f"{host.label}: {file.name} cannot be written under {folder}: {' '.join(lines[-2:])}")
    try:
        yield str(PurePosixPath(places[-1]) / file.name)
    finally:
        ask(host, ["rm", "-rf", "--", places[-1]], CLEAN_SECONDS)
