"""What a person should hear of an event and its commands, as lines; the everyday (windows, averagings) is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from flodl.decide.messages import (
    Alert,
    Command,
    Cut,
    EpochEnded,
    Event,
    FormGroup,
    Goodbye,
    IntervalEnded,
    RankDied,
    RankFailed,
    StopRequested,
    WindowDone,
)
from flodl.decide.totals import EpochMetrics, IntervalMetrics
from flodl.decide.view import View

__all__ = ["News", "epoch_line", "loss_words", "news", "shares_line"]

SHOWN_RANKS = 8


class News(msgspec.Struct, frozen=True, kw_only=True):
    """One line. kind: how it is coloured."""

    kind: Literal["said", "quiet", "warning", "bad"]
    text: str


def news(event: Event, commands: Sequence[Command], view: View) -> list[News]:
    """The lines for one event, in order: what happened, then what was decided; each once."""
    lines = [*_of_loss(event, commands), *_of_event(event)]
    lost = event.rank if isinstance(event, RankDied | RankFailed) else None
    for command in commands:
        lines += _of_command(command, view, lost)
    return list(dict.fromkeys(lines))


def loss_words(loss: float | None) -> str:
    """A training loss, said where it is no number."""
    return "loss not finite" if loss is None else f"loss {loss:.4f}"


def epoch_line(metrics: EpochMetrics, num_epochs: int) -> str:
    """One finished epoch. People count epochs from 1, files from 0."""
    width = len(str(num_epochs))
    parts = [
        f"epoch {metrics.epoch + 1:>{width}}/{num_epochs}",
        loss_words(metrics.loss),
        f"{metrics.samples_per_second:,.0f} samples/s",
    ]
    if len(metrics.ranks) > 1:
        parts.append(f"anchor {metrics.anchor} {metrics.phase}")
        parts.append(f"shares {shares_line({r.rank: r.batch_share for r in metrics.ranks})}")
    return "  ".join([*parts, *_values(metrics.eval)])


def shares_line(shares: Mapping[int, float]) -> str:
    """``r0 71%  r1 29%``; of many ranks the first 8 and the range of the others."""
    shown = list(shares.items())[:SHOWN_RANKS]
    text = " ".join(f"r{rank} {share:.0%}" for rank, share in shown)
    others = [share for rank, share in shares.items() if rank not in dict(shown)]
    return text + (f" and {len(others)} more, {min(others):.1%} to {max(others):.1%}" if others else "")


def _of_loss(event: Event, commands: Sequence[Command]) -> Iterator[News]:
    """A rank is gone: nothing where an alert says it better, where it was known, or where it had left in order."""
    if isinstance(event, RankFailed):
        cause, verb, is_news = event.message, "failed", True
        if event.trace not in ("", event.message):
            yield News(kind="quiet", text=event.trace)
    elif isinstance(event, RankDied):
        cause, verb, is_news = event.cause, "died", bool(commands)
    else:
        return
    alerts = [command.text for command in commands if isinstance(command, Alert) and command.rank == event.rank]
    if is_news and not any(cause in text for text in alerts):
        yield News(kind="bad", text=f"rank {event.rank} {verb}: {cause}")


def _of_event(event: Event) -> Iterator[News]:
    match event:
        case StopRequested():
            yield News(kind="warning", text=f"stopping at the next round: {event.reason}")
        case WindowDone() | Goodbye():
            for result in event.callbacks:  # of those that failed the coordinator tells
                if result.ok and result.values and result.name == "eval":
                    where = f"epoch {result.epoch + 1}" if result.epoch >= 0 else "at the end"
                    where += f" at {result.samples_done:,} samples" if result.samples_done else ""
                    yield News(kind="said", text=f"{where}: " + "  ".join(_values(result.values)))
        case _:
            pass


def _of_command(command: Command, view: View, lost: int | None) -> Iterator[News]:
    match command:
        case EpochEnded():
            yield News(kind="said", text=epoch_line(command.metrics, view.num_epochs))
        case IntervalEnded():
            yield News(kind="quiet", text=_interval_line(command.metrics, view.num_epochs))
        case Alert():
            yield News(kind="bad" if lost is not None and command.rank == lost else "warning", text=command.text)
        case FormGroup() if command.generation == 1:
            yield News(kind="quiet", text=command.reason)
        case FormGroup() if len(command.ranks) == 1:  # who goes on alone, or each by itself where the run ends
            yield News(kind="warning", text=command.reason)
        case FormGroup():
            members = ", ".join(str(rank) for rank in command.ranks)
            yield News(kind="warning", text=f"going on with ranks {members}: {command.reason}")
        case Cut():
            yield News(kind="quiet", text=command.reason)
        case _:
            pass


def _interval_line(metrics: IntervalMetrics, num_epochs: int) -> str:
    """A part of an epoch."""
    part = f"epoch {metrics.epoch + 1}/{num_epochs}, {metrics.interval / metrics.intervals:.0%} of it"
    return f"{part}  {loss_words(metrics.loss)}  {metrics.samples_per_second:,.0f} samples/s"


def _values(values: Mapping[str, float]) -> list[str]:
    return [f"{'eval ' if name == 'loss' else ''}{name} {value:.4g}" for name, value in sorted(values.items())]
