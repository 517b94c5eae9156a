"""What a run has left: its journal, how it ended, and whether any sample was lost or came twice."""

from __future__ import annotations

from pathlib import Path

from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, End, Event, SaveBegun
from flodl.record.journal import read_journal
from flodl.spec.codec import load_spec
from flodl.spec.job import JobSpec
from flodl.trainer import resolved
from tests.e2e.command import command

__all__ = ["audit", "carried_out", "end_of", "job_of", "journal", "saves"]


def carried_out(folder: Path, *arguments: str) -> str:
    """A command that ends well; its output."""
    with command(folder, *arguments) as run:
        assert run.end(90.0) == 0, run.output
        return run.output


def journal(folder: Path) -> list[tuple[Event, tuple[Command, ...]]]:
    return read_journal(folder / "journal.jsonl")[1]


def end_of(folder: Path) -> End:
    return next(command for _, commands in journal(folder) for command in commands if isinstance(command, End))


def saves(folder: Path) -> list[tuple[float, SaveBegun]]:
    """The saves that were ordered, each with its moment."""
    return [(event.at, order) for event, orders in journal(folder) for order in orders if isinstance(order, SaveBegun)]


def job_of(folder: Path) -> JobSpec:
    """As the coordinator ran it."""
    return resolved(load_spec(folder / "spec.json"), read_journal(folder / "journal.jsonl")[0].roster)


def audit(folder: Path) -> tuple[int, int]:
    """LOST and DUP after the journal was replayed, which gives the commands that it holds."""
    header, entries = read_journal(folder / "journal.jsonl")
    coordinator = Coordinator(job_of(folder), header.roster)
    for event, commands in entries:
        assert coordinator.handle(event) == commands
    return coordinator.audit()
