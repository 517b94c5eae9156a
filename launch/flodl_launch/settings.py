"""The user's and the machine's ssh_config, with what they include: paramiko passes over Include without a word."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import fabric
import paramiko

__all__ = ["read_settings"]

FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
DEPTH_LIMIT = 16  # as OpenSSH's
WORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*")
PATH = re.compile(r'"([^"]*)"|(\S+)')


def read_settings() -> fabric.Config:
    """Nothing of ~/.fabric.yaml: a run depends on its cluster file and on ssh's own files.

    Raises paramiko.SSHException, ValueError or OSError where one of them cannot be understood.
    """
    found = paramiko.SSHConfig()
    for name in FILES:
        file = Path(name).expanduser()
        if file.is_file():
            found.parse(io.StringIO("\n".join(_lines(file, file.parent, "Host *", DEPTH_LIMIT)) + "\n"))
    return fabric.Config(lazy=True, ssh_config=found)


def _lines(file: Path, folder: Path, block: str, depth: int) -> Iterator[str]:
    """The file's lines, included ones in their place. block: the Host or Match line that holds where it is read."""
    if depth == 0:
        raise ValueError(f"{file}: files include each other without end")
    for line in file.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        said = WORD.fullmatch(line)
        keyword = said[1].lower() if said is not None else ""
        if said is None or keyword != "include":
            block = line if keyword in ("host", "match") else block
            yield line
            continue
        for one, other in PATH.findall(said[2]):
            pattern = str(folder / Path(one or other).expanduser()).lstrip("/")
            for path in sorted(Path("/").glob(pattern)):
                yield from _lines(path, folder, block, depth - 1)
                yield block  # what comes behind an included file belongs where it stands
