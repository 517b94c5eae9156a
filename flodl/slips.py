"""A file of the config tree that cannot be read: which one, which line, what is wrong there, in one line.

Only a slip of PyYAML's own names its file. For all others the files are read once more, and the first that fails in the
same way is the one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf
from omegaconf.errors import GrammarParseError
from yaml import YAMLError
from yaml.error import Mark, MarkedYAMLError
from yaml.reader import ReaderError

from flodl.errors import Problem
from flodl.hooks import config_folder
from flodl.record.text import clean, short_path

__all__ = ["slip"]

_HEADER = re.compile(r"Too many components in '(?P<text>.+)'|Expected .*'(?P<other>@package.*)'")
_DEFAULTS = re.compile(r"'(?P<name>[^']+)'.*defaults must be a list|defaults.*'(?P<other>[^']+)'")
_REMEDIES = {
    "mapping values are not allowed": "look at the indentation, and put text with a colon in quotes",
    r"found character '\t'": "indent with spaces",
    "duplicate key": "keep one of the two",
    "determine a constructor": "a tag (!...) names code, and a file may not: write plain values",
    "another document": "leave out the line ---",
}
_TEXT = "save the file as text in UTF-8"


def slip(error: Exception, arguments: Sequence[str] = ()) -> Problem | None:
    """What is wrong with which file, where `error` comes from reading one; None for any other error.

    arguments: what was typed; it may name a config folder.
    """
    cause = error.__cause__ or error.__context__
    if isinstance(cause, GrammarParseError):  # Hydra wraps it, and says nothing
        error = cause
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return _marked(error, mark)
    if isinstance(error, ReaderError) and Path(str(error.name)).is_file():
        return _unprintable(error, Path(str(error.name)))
    if isinstance(error, OSError):
        name = str(error.filename or "")
        if not name.endswith((".yaml", ".yml")) or not error.strerror:
            return None
        return Problem(key=short_path(Path(name)), constraint=f"cannot be read: {error.strerror}")
    files = list(_files(arguments))
    if isinstance(error, UnicodeDecodeError | RecursionError | GrammarParseError | YAMLError):
        return next((found for file in files if (found := _same(error, file)) is not None), None)
    return _hydras(str(error), files) if isinstance(error, ValueError) else None


def _marked(error: MarkedYAMLError, mark: Mark) -> Problem:
    said = clean(" ".join(str(error.problem or error.context or error).split(" \n")))
    remedy = next((text for words, text in _REMEDIES.items() if words in said), "look at the indentation there")
    return _at(Path(str(mark.name)), mark.line + 1, said, remedy)


def _unprintable(error: ReaderError, path: Path) -> Problem:
    line = path.read_text(errors="replace")[: error.position].count("\n") + 1
    return _at(path, line, f"holds a character that no text has ({error.character:#x})", _TEXT)


def _same(error: Exception, path: Path) -> Problem | None:
    """The slip in this file, if reading it fails as `error` says."""
    try:
        OmegaConf.load(path)
    except UnicodeDecodeError:
        is_it = isinstance(error, UnicodeDecodeError) and error.object in path.read_bytes()
        return _undecodable(path) if is_it else None
    except RecursionError:
        return _at(path, None, "a block contains itself", "look at its aliases (*)") if isinstance(
            error, RecursionError) else None  # fmt: skip
    except GrammarParseError as found:
        said = str(found).partition("\n")[0]
        if str(error).partition("\n")[0] != said:
            return None
        quoted = said.rpartition(" at input '")[2].rstrip("'")
        return _at(path, _line_of(path, quoted), f"a ${{...}} cannot be read: {said}", "look at its braces")
    except (YAMLError, OSError, ValueError):
        return None
    return None


def _undecodable(path: Path) -> Problem:
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as found:
        line = data[: found.start].count(b"\n") + 1
        return _at(path, line, f"is no text in UTF-8 (byte {data[found.start]:#04x})", _TEXT)
    return _at(path, None, "was no text in UTF-8", _TEXT)


def _hydras(text: str, files: Sequence[Path]) -> Problem | None:
    """What Hydra itself asks of a file: its header, its defaults list."""
    if found := _HEADER.search(text):
        words = found["text"] or found["other"]
        for path in files:
            line = _line_of(path, words)
            if line is not None:
                return _at(path, line, f"a header cannot be read: {words}", "write # @package and one name")
    if found := _DEFAULTS.search(text):
        name = found["name"] or found["other"]
        for path in files:
            if path.with_suffix("").as_posix().endswith(f"/{name}"):
                return _at(path, _line_of(path, "defaults"), "defaults must be a list",
                           "write defaults: [name, _self_]")  # fmt: skip
    return None


def _files(arguments: Sequence[str]) -> Iterator[Path]:
    """All files of the config tree: the user's own first."""
    roots = [Path.cwd() / "conf"]
    for i, text in enumerate(arguments):
        name, _, value = text.partition("=")
        if name in ("--config-dir", "-cd"):
            roots.append(Path(value or (arguments[i + 1] if i + 1 < len(arguments) else "")))
    for root in (*roots, config_folder()):
        yield from sorted(path for path in root.rglob("*.yaml") if path.is_file())


def _line_of(path: Path, words: str) -> int | None:
    lines = path.read_text(errors="replace").splitlines()
    return next((i for i, line in enumerate(lines, 1) if words in line), None)


def _at(path: Path, line: int | None, constraint: str, remedy: str) -> Problem:
    where = short_path(path) + ("" if line is None else f", line {line}")
    return Problem(key=where, constraint=constraint, remedy=remedy)
