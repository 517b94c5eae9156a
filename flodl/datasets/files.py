"""Where a data set's files lie: the first of several folders that holds all of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["MissingDataError", "find_files"]


class MissingDataError(FileNotFoundError):
    """Files are not there. filename: the folder that was looked into first. source: where to get them, a sentence."""

    def __init__(self, folder: str, source: str) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        self.source = source


def find_files(folders: Sequence[str], wanted: Mapping[str, Sequence[str]], source: str) -> dict[str, Path]:
    """part -> file, all of the first folder that has every part; wanted: part -> the names that its file may have.

    Raises MissingDataError where no folder has them all.
    """
    tried: list[str] = []
    for folder in folders:
        found = {part: _first(Path(folder), names) for part, names in wanted.items()}
        there = {part: path for part, path in found.items() if path is not None}
        if len(there) == len(wanted):
            return there
        absent = [wanted[part][0] for part in wanted if part not in there]
        tried.append(f"{folder} (no {', '.join(absent)})" if there else folder)
    text = f"looked into {' and '.join(tried) or 'no folder'}; {source}"
    raise MissingDataError(folders[0] if folders else "", text)


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((path for name in names if (path := folder / name).is_file()), None)
