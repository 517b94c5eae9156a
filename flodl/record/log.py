"""Logs for people: what each rank printed, and what the controller decided in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from flodl.decide.messages import (
    Alert,
    Command,
    Cut,
    Dismiss,
    End,
    EndBy,
    EpochEnded,
    Event,
    Finish,
    FormGroup,
    RankDied,
    RankFailed,
    RankReady,
    RankSuspected,
    Restart,
    StopRequested,
)
from flodl.record.files import LineFile
from flodl.record.text import clean

__all__ = ["ControllerLog", "RankLog", "told"]

TAIL_LINES = 20


class RankLog:
    """One rank's output, each line prefixed ``[host:device rN]``. `tail` holds the last 20, for when it dies."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.prefix = prefix
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._lines = LineFile(path)

    def append(self, line: str | bytes) -> str:
        """Write one line of foreign text; returns it clean, without the prefix."""
        text = clean(line)
        self.tail.append(text)
        self._lines.append(f"{self.prefix} {text}".encode())
        return text

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


class ControllerLog:
    """The controller's own log: what happened and why, one line each, with the time in UTC."""

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)

    def append(self, text: str) -> None:
        """Write one message; a message of several lines becomes several."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for line in text.splitlines() or [""]:
            self._lines.append(f"{now} {clean(line)}".encode())

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener of drive.run: windows and averagings are the journal's, all else is told here."""
        for line in told(event, commands):
            self.append(line)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()


def told(event: Event, commands: Sequence[Command]) -> list[str]:
    """What a person wants to read of an event and its commands; [] for the everyday."""
    said = [_event(event), *(_command(command) for command in commands)]
    return [text for text in said if text]


def _event(event: Event) -> str:
    match event:
        case RankReady():
            return f"rank {event.rank} is ready on {event.host} ({event.device})"
        case RankDied():
            return f"rank {event.rank} died: {event.cause}"
        case RankSuspected():
            return f"rank {event.rank} was not heard for {event.silent_seconds:.1f} s"
        case RankFailed():
            return f"rank {event.rank} failed ({event.kind}): {event.message}" + (
                f"\n{event.trace}" if event.trace else ""
            )
        case EndBy():
            return f"{event.rule}: the run has to be over in {event.seconds_left:.0f} s"
        case StopRequested():
            return f"stop requested: {event.reason}"
        case _:
            return ""


def _command(command: Command) -> str:
    match command:
        case FormGroup():
            members = ", ".join(str(rank) for rank in command.ranks)
            return f"generation {command.generation}: ranks {members}: {command.reason}"
        case EpochEnded():
            figures = command.metrics
            loss = "not finite" if figures.loss is None else f"{figures.loss:.4f}"
            return (
                f"epoch {figures.epoch + 1}: loss {loss}, {figures.samples_per_second:.0f} samples/s, "
                f"anchor {figures.anchor}, {figures.phase}"
            )
        case Alert():
            return f"alert: {command.text}"
        case Cut() | Finish() | Restart() | Dismiss():
            return f"{type(command).__name__.lower()}: {command.reason}"
        case End():
            return f"end: {command.status}, exit code {command.exit_code}: {command.reason}"
        case _:
            return ""
