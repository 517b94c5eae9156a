"""Text from elsewhere, made fit for a log and a terminal: no escapes, no control characters, always valid UTF-8.
And the other way: a key and its value as they are typed."""

from __future__ import annotations

import errno
import re
import shlex
from pathlib import Path
from typing import cast

__all__ = ["clean", "hydra_text", "is_serious", "no_write", "plain_name", "short_path", "typed"]

_PLAIN = re.compile(r"[\w./:+%@-]+", re.ASCII)
_NO_TEXT = re.compile(r"null|true|false|[+-]?(inf|nan|(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(e[+-]?\d+)?)", re.I | re.ASCII)

# ECMA-48: CSI sequences; OSC, DCS, APC, PM and SOS strings up to their terminator; any other two-byte escape.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SERIOUS = re.compile(r"\b(warn(ing)?|error|critical|fatal|traceback|exception)\b|\w(Error|Warning|Exception)\b", re.I)


def clean(line: str | bytes) -> str:
    """One line without terminal escapes and control characters (tabs stay).

    Bytes that are no UTF-8 are shown as ``\\xff``. A progress bar that redraws itself with carriage returns is
    reduced to its last state. Characters that turn the writing direction are dropped: they can disguise a line.
    """
    text = line.decode("utf-8", "backslashreplace") if isinstance(line, bytes) else line
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates
    text = _ESCAPES.sub("", text.rstrip("\r\n"))
    text = text.rsplit("\r", maxsplit=1)[-1]
    return _CONTROLS.sub("", text.replace("\n", " "))


def is_serious(line: str) -> bool:
    """Whether a rank's line is worth a place on the controller's terminal: a warning or worse."""
    return _SERIOUS.search(line) is not None


def no_write(error: OSError, folder: Path) -> str:
    """Why a run cannot write, and what to do. folder: where it was to, for an error that does not say of what it is."""
    place = Path(error.filename) if isinstance(error.filename, str) and error.filename else folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room there, or name a folder on another disk: hydra.run.dir=... (in a program save_path)"
    else:
        remedy = "a run needs a folder to write in: hydra.run.dir=... (in a program save_path) names another"
    return f"{short_path(place)}: {error.strerror or error}; {remedy}"


def plain_name(label: str) -> str:
    """A host's label as part of a file name: everything but letters, digits, ``-``, ``_`` and inner dots is %-coded."""
    coded = "".join(
        c if c.isascii() and (c.isalnum() or c in "-_.") else "".join(f"%{b:02X}" for b in c.encode("utf-8"))
        for c in label
    )
    return "%2E" + coded[1:] if coded.startswith(".") else coded or "%"


def short_path(path: Path) -> str:
    """A path as short as it can be said here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def typed(key: str, value: object) -> str:
    """key=value as it is typed: quoted for Hydra where it has to be, and then for the shell."""
    return shlex.quote(f"{key}={hydra_text(value)}")


def hydra_text(value: object) -> str:
    """A plain value in Hydra's grammar: read back, it is the same. Of maps only the empty one: Hydra quotes no keys."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if _PLAIN.fullmatch(value) and not _NO_TEXT.fullmatch(value) else _quoted(value)
        case list() | tuple():
            return "[" + ",".join(hydra_text(part) for part in cast("list[object]", value)) + "]"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    inner = re.sub(r"(\\*)'", lambda found: f"{found[1] * 2}\\'", text)
    return "'" + re.sub(r"\\+$", lambda found: found[0] * 2, inner) + "'"
