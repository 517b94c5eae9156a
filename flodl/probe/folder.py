"""A host's copy of the data: is it there, can it be read, and is it the same as on the other hosts?

Looking is cheap: all names and sizes, and the first and last 64 KiB of at most 32 files that are spread over the list.
Equal copies look equal, in whatever folder they lie; a copy that is cut short or of another version does not. What a
data set yields is compared again at admission, sample by sample.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from flodl.probe.report import DataCopy, Question

__all__ = ["data_copies", "data_copy"]

END_BYTES = 64 << 10
READ_FILES = 32
MOST_FILES = 200_000


def data_copies(question: Question) -> tuple[DataCopy, ...]:
    """Every part of the data folder that the job reads."""
    folder = Path(question.data_path) if question.data_path else Path(question.path or ".") / "data"
    return tuple(data_copy(folder.absolute(), part) for part in question.data)


def data_copy(folder: Path, part: str) -> DataCopy:
    """One part ("": all) of a data folder."""
    place = folder / part if part else folder
    if not place.exists():
        return DataCopy(part=part, path=str(place))
    try:
        return _signed(place, part)
    except OSError as error:
        return DataCopy(part=part, path=str(place), exists=True, trouble=f"{error.filename or place}: {error.strerror}")


def _signed(place: Path, part: str) -> DataCopy:
    files = list(islice(_files(place), MOST_FILES + 1))
    kept = files[:MOST_FILES]
    named = [(os.path.relpath(path, place) if place.is_dir() else "", path, size) for path, size in kept]
    names, sizes = hashlib.sha256(), hashlib.sha256()
    for name, _, size in named:
        names.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        sizes.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
    step = max(1, -(-len(kept) // READ_FILES))
    return DataCopy(
        part=part,
        path=str(place),
        exists=True,
        num_files=len(kept),
        num_bytes=sum(size for _, size in kept),
        names=names.hexdigest(),
        signature=sizes.hexdigest(),
        ends={_shown(name): _ends(path, size) for name, path, size in named[::step]},
        is_partial=len(files) > len(kept),
    )


def _ends(path: str, size: int) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            digest = hashlib.sha256(file.read(END_BYTES))
            if size > END_BYTES:
                file.seek(max(END_BYTES, size - END_BYTES))
                digest.update(file.read(END_BYTES))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None  # a failing read does not say of what
    return digest.hexdigest()[:32]


def _shown(name: str) -> str:
    """A name that JSON can hold."""
    return name.encode("utf-8", "backslashreplace").decode()


def _files(place: Path, above: frozenset[Path] = frozenset()) -> Iterator[tuple[str, int]]:
    """Every file below a folder (or the file itself) with its size, in an order that depends on names alone.

    Hidden files and what Python leaves behind are no data. A link is followed, but not to a folder above it.
    """
    if not place.is_dir():
        yield str(place), place.stat().st_size
        return
    real = place.resolve()
    if real in above:
        return
    with os.scandir(place) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files(Path(entry.path), above | {real})
        elif entry.is_file():
            yield entry.path, entry.stat().st_size
