"""A journal read back is what was written, also after a kill in the middle of a line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flodl.errors import FlodlError
from flodl.record.journal import Journal, JournalHeader, read_journal
from tests.record.figures import ROSTER, STORY


@pytest.fixture
def written(runs: Path) -> Path:
    """A journal of the whole story."""
    path = runs / "a journal"
    journal = Journal(path, JournalHeader(run_id="r", job_sha256="s", roster=ROSTER))
    for event, commands in STORY:
        journal.append(event, commands)
    journal.close()
    return path


def test_events_and_commands_come_back_equal_and_in_order(written: Path) -> None:
    header, entries = read_journal(written)
    assert (header.run_id, header.job_sha256, header.roster) == ("r", "s", ROSTER)
    assert entries == STORY


def test_every_line_is_json_that_other_tools_read(written: Path) -> None:
    lines = [msgspec.json.decode(line) for line in written.read_bytes().splitlines()]
    assert lines[0]["schema"] == 1
    assert [line["event"]["type"] for line in lines[1:]] == [type(event).__name__ for event, _ in STORY]


def test_a_kill_at_any_byte_loses_at_most_the_last_line(written: Path) -> None:
    whole = written.read_bytes()
    header_ends = whole.index(b"\n") + 1
    for size in range(header_ends, len(whole), 7):
        written.write_bytes(whole[:size])
        _, entries = read_journal(written)
        assert entries == STORY[: whole[:size].count(b"\n") - 1]


def test_a_journal_without_a_header_is_refused_in_words(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:20])
    with pytest.raises(FlodlError, match="not even a header"):
        read_journal(written)


def test_a_damaged_line_in_the_middle_is_named(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[2] = b"{}\n"
    written.write_bytes(b"".join(lines))
    with pytest.raises(FlodlError, match=":3: Object missing required field `event`"):
        read_journal(written)


def test_a_journal_of_another_schema_is_refused(written: Path) -> None:
    written.write_bytes(written.read_bytes().replace(b'"schema":1', b'"schema":9', 1))
    with pytest.raises(FlodlError, match="schema 9"):
        read_journal(written)


def test_a_second_run_never_writes_into_a_journal_that_is_there(written: Path) -> None:
    with pytest.raises(FileExistsError):
        Journal(written, JournalHeader(run_id="r", job_sha256="s", roster=ROSTER))
