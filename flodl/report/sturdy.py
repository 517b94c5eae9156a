"""A stream for a run's display that outlives whoever reads it.

A closed pipe (`| head`), a full disk behind `>`, a terminal that was hung up or a stream that was never open costs
what would have been shown, never the run: hours of training do not hang on a display.
"""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["Sturdy"]


class Sturdy:
    """The part of a text stream that rich writes to. stream None: closed from the start."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        """Of the stream underneath."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """True where a person may watch."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        """Of the stream underneath; OSError where there is none."""
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write what can be written; letters that the encoding lacks become question marks."""
        if self._stream is not None:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError):
                self._give_up()
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up()

    def _give_up(self) -> None:
        """Nobody reads: what is buffered goes nowhere, so that the interpreter's last flush does not fail either."""
        stream, self._stream = self._stream, None
        try:
            descriptor = stream.fileno() if stream is not None else -1
        except (OSError, ValueError):  # closed, or in memory
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
