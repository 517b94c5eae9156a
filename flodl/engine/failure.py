"""A rank's own failure in words that always arrive: the user's code may raise anything.

Text that cannot be made, sent or read would hide the first cause: an exception without words, bytes that are no
UTF-8, a message of megabytes.
"""

from __future__ import annotations

import traceback

from flodl.errors import FlodlError

__all__ = ["trace_of", "words_of"]

TRACE_LINES = 20
MESSAGE_CHARACTERS = 2000
LINE_CHARACTERS = 500


def words_of(error: BaseException) -> str:
    """What happened, in at most 2000 characters."""
    try:
        said = str(error)
    except Exception as trouble:  # noqa: BLE001  a __str__ of the user's own
        said = f"(its text cannot be made: {type(trouble).__name__})"
    return _sendable(said if isinstance(error, FlodlError) else f"{type(error).__name__}: {said}", MESSAGE_CHARACTERS)


def trace_of(error: BaseException) -> str:
    """The last 20 lines of its traceback, each of at most 500 characters. What flodl itself found needs none."""
    if isinstance(error, FlodlError) and error.__cause__ is None:
        return words_of(error)
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(_sendable(line, LINE_CHARACTERS) for line in lines[-TRACE_LINES:])


def _sendable(text: str, limit: int) -> str:
    text = text[:limit].encode("utf-8", "backslashreplace").decode() + (" ..." if len(text) > limit else "")
    return text[: limit + len(" ...")]
