"""The journal: every event that the Coordinator heard and every command that it gave, in order.

First line: a header that says which run this is. Then one line per event with the commands that answered it. So a
run can be replayed: the events through a fresh Coordinator of the header's roster give the same commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from flodl.decide.messages import Command, Event
from flodl.decide.roster import Place
from flodl.errors import FlodlError
from flodl.record.files import LineFile, whole_lines

__all__ = ["JOURNAL_SCHEMA", "Journal", "JournalEntry", "JournalHeader", "read_journal"]

JOURNAL_SCHEMA = 1
T = TypeVar("T")


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Which run this is. job_sha256: of the canonical job in the spec file. started: wall clock, ISO 8601, UTC."""

    schema: int = JOURNAL_SCHEMA
    run_id: str
    job_sha256: str
    roster: tuple[Place, ...]
    started: str = ""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event and what the Coordinator ordered because of it."""

    event: Event
    commands: tuple[Command, ...] = ()


class Journal:
    """Writes a journal. `append` is a listener of drive.run. Raises FileExistsError where there is one already."""

    def __init__(self, path: Path, header: JournalHeader) -> None:
        if path.exists():
            raise FileExistsError(f"{path}: a journal is written once")
        self.header = header
        self._encode = msgspec.json.Encoder().encode
        self._lines = LineFile(path)
        self._lines.append(self._encode(header))

    def append(self, event: Event, commands: Sequence[Command]) -> None:
        """Write one event and its commands, as one line."""
        self._lines.append(self._encode(JournalEntry(event=event, commands=tuple(commands))))

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


def read_journal(path: Path) -> tuple[JournalHeader, list[tuple[Event, tuple[Command, ...]]]]:
    """A journal's header and its (event, commands) in order.

    A torn last line is left out: its process was killed while it wrote. Any other line that does not decode raises
    FlodlError with its number.
    """
    lines = whole_lines(path)
    first = next(lines, None)
    if first is None:
        raise FlodlError(f"{path}: holds no whole line, not even a header")
    header = _decoded(first, JournalHeader, path, 1)
    if header.schema != JOURNAL_SCHEMA:
        raise FlodlError(f"{path}: journal schema {header.schema}; this flodl reads {JOURNAL_SCHEMA}")
    entries = [_decoded(line, JournalEntry, path, number) for number, line in enumerate(lines, start=2)]
    return header, [(entry.event, entry.commands) for entry in entries]


def _decoded(line: bytes, kind: type[T], path: Path, number: int) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise FlodlError(f"{path}:{number}: {error}") from error
