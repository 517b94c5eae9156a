"""A journal short enough to be read: one line per event that led to something, and one per order."""

from __future__ import annotations

from collections.abc import Iterable

from flodl.decide.messages import (
    Alert,
    Average,
    Command,
    Cut,
    End,
    EpochEnded,
    Event,
    Finish,
    FormGroup,
    IntervalEnded,
    Range,
    RunWindow,
    SaveBegun,
)

__all__ = ["lines"]


def lines(journal: Iterable[tuple[Event, tuple[Command, ...]]]) -> list[str]:
    """The journal in words: milliseconds, who said what, and the orders that followed."""
    told: list[str] = []
    for event, commands in journal:
        if commands:
            who = f" r{event.rank}" if hasattr(event, "rank") else ""
            told.append(f"{event.at * 1000:.0f} ms {type(event).__name__}{who}")
            told += [f"    {_save(c) if isinstance(c, SaveBegun) else _order(c)}" for c in commands]
    return told


def _save(command: SaveBegun) -> str:
    return f"r{command.rank} saves #{command.round}: {command.why}"


def _order(command: Command) -> str:
    match command:
        case RunWindow():
            rounds = ", ".join(
                f"#{one.number}: {one.batches} of {one.samples} after {one.samples_before}" for one in command.rounds
            )
            extras = "".join(
                [
                    " alone" if command.alone else "",
                    f" +{command.max_overshoot}" if command.max_overshoot else "",
                    f" {'+'.join(command.callbacks)}" if command.callbacks else "",
                ]
            )
            held = " ".join(map(_range, command.ranges)) or "-"
            return f"r{command.to[0]} run e{command.epoch} {rounds}; holds {held}{extras}"
        case Average():
            masses = ", ".join(f"r{rank} {mass:g}" for rank, mass in zip(command.to, command.masses, strict=True))
            return f"average #{command.round}: {masses}" + (" to the consensus" if command.consensus else "")
        case FormGroup():
            source = "" if command.source is None else f" from r{command.source}"
            kept = f" keeping #{command.accept_round}" if command.accept_round else ""
            return f"group {command.generation} of {_ranks(command.ranks)}{source}{kept}"
        case Finish():
            return f"{_ranks(command.to)} finish {'+'.join(command.callbacks)}".rstrip()
        case EpochEnded(metrics=metrics):
            return f"epoch {metrics.epoch} ended: {metrics.samples} samples in {metrics.rounds} rounds"
        case IntervalEnded(metrics=metrics):
            return f"part {metrics.interval} of {metrics.intervals} of epoch {metrics.epoch} ended: {metrics.samples}"
        case Cut():
            return f"cut {_ranks(command.to)}"
        case Alert():
            return f"alert: {command.text}"
        case End():
            done = command.totals.samples_done
            return f"end {command.status} {command.exit_code}: {done} samples; {command.reason}"


def _ranks(ranks: tuple[int, ...]) -> str:
    return ",".join(f"r{rank}" for rank in ranks)


def _range(piece: Range) -> str:
    return f"e{piece.epoch}[{piece.start}:{piece.stop}]"
