"""How a run went, read from its folder: a point per epoch, a point per averaging, and what each rank did when.

What cannot be read (no file, an older or damaged one) is absent; nothing here raises for a folder's sake. Long runs are
thinned: of several rounds in one point the largest divergence is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from flodl.decide.verdict import objections
from flodl.errors import FlodlError
from flodl.record.files import whole_lines
from flodl.record.folder import RunFolder
from flodl.record.metrics import read_metrics
from flodl.record.result import Result
from flodl.report.losses import Losses, LossPoint

__all__ = ["ACTIVITIES", "EpochPoint", "Objection", "RoundPoint", "Strip", "Trace", "epoch_points", "trace"]

ACTIVITIES = ("compute", "data wait", "averaging", "idle", "evaluation, saves, messages")
MAX_POINTS = 200
NUM_BINS = 120


class EpochPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch's end. epoch: from 1, as people count. loss: of its training, null where it was not finite. seconds: of
    training since the run's first window. eval: of the consensus at its end."""

    epoch: int
    loss: float | None
    eval: dict[str, float]
    seconds: float
    wall_seconds: float
    rounds: int
    anchor: int
    divergence: float


class RoundPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One averaging, or several neighbouring ones of a long run. divergence: the largest of ranks and rounds.
    anchor: null in journals that do not tell it."""

    round: int
    seconds: float
    anchor: int | None
    divergence: float


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """What guard or meta-controller had against the anchor after the round before this one. anchor: this round's."""

    round: int
    anchor: int
    text: str


class Strip(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did over the run: equal stretches of time, each with its parts (0..1) in ACTIVITIES' order."""

    rank: int
    place: str
    stretches: tuple[tuple[float, ...], ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal tells. seconds: from the first window to the last report. losses: of a run that began anew."""

    seconds: float = 0.0
    rounds: tuple[RoundPoint, ...] = ()
    losses: tuple[LossPoint, ...] = ()
    strips: tuple[Strip, ...] = ()
    objections: tuple[Objection, ...] = ()


def epoch_points(folder: RunFolder, result: Result | None, before: Sequence[EpochPoint] = ()) -> tuple[EpochPoint, ...]:
    """The epochs of a run. before: of the one that it went on from. It begins where the seconds of its result leave
    room for; without a result where that one's last epoch before its own ended."""
    try:
        epochs = read_metrics(folder.metrics_path)
    except (FlodlError, OSError):
        return ()
    ends = list(accumulate(epoch.wall_seconds for epoch in epochs))
    start = 0.0
    if epochs and epochs[0].epoch and result is not None:
        start = max(0.0, result.wall_seconds - ends[-1])
    elif epochs:
        start = max((point.seconds for point in before if point.epoch <= epochs[0].epoch), default=0.0)
    return tuple(
        EpochPoint(epoch=e.epoch + 1, loss=e.loss, eval=e.eval, seconds=start + end, wall_seconds=e.wall_seconds,
                   rounds=e.rounds, anchor=e.anchor, divergence=e.divergence)
        for e, end in zip(epochs, ends, strict=True)
    )  # fmt: skip


def trace(folder: RunFolder) -> Trace:
    """What the journal tells of averagings and ranks."""
    reading = _Reading()
    try:
        for line in _lines(folder.journal_path):
            reading.take(line)
    except (OSError, msgspec.MsgspecError):
        pass  # what was read so far is shown
    return reading.told()


class _Place(msgspec.Struct):
    rank: int
    host: str
    device: str


class _Event(msgspec.Struct):
    """The fields of any event that are looked at; the others, and those of later versions, are passed over."""

    type: str
    at: float
    rank: int = -1
    round: int = 0
    divergence: float = 0.0
    compute_ms: float = 0.0
    data_wait_ms: float = 0.0
    exposed_ms: float = 0.0
    idle_ms: float = 0.0
    num_samples: int = 0
    samples: int = 0
    loss_sum: float | None = 0.0


class _Metrics(msgspec.Struct):
    samples: int = 0


class _Command(msgspec.Struct):
    type: str
    metrics: _Metrics | None = None
    to: tuple[int, ...] = ()
    rounds: tuple[tuple[int, ...], ...] = ()
    anchor: int = 0
    reason: str = ""


class _Line(msgspec.Struct):
    """A line of a journal: its header, or an event and its commands."""

    event: _Event | None = None
    commands: tuple[_Command, ...] = ()
    roster: tuple[_Place, ...] = ()


class _Stretch(msgspec.Struct, frozen=True):
    """From one report of a rank to the next. parts: seconds of each activity."""

    start: float
    end: float
    parts: tuple[float, ...]


class _Reading:
    """A journal so far."""

    def __init__(self) -> None:
        self._places: dict[int, str] = {}
        self._began: float | None = None
        self._newest = 0.0
        self._anchors: dict[int, int] = {}  # round -> anchor
        self._rounds: dict[int, RoundPoint] = {}
        self._losses = Losses()
        self._objections: dict[int, Objection] = {}
        self._stretches: dict[int, list[_Stretch]] = {}
        self._returned: dict[int, float] = {}  # rank -> when a new process of it was there

    def take(self, line: _Line) -> None:
        for place in line.roster:
            self._places[place.rank] = f"{place.host}:{place.device}"
        for command in line.commands:
            if command.type == "RunWindow" and line.event is not None:
                self._began = line.event.at if self._began is None else self._began
                self._anchors.update((numbers[0], command.anchor) for numbers in command.rounds)
                self._losses.order(command.rounds)
                self._object(command)
            elif command.type == "EpochEnded" and command.metrics is not None:
                self._losses.epoch_samples = command.metrics.samples
        if line.event is not None and line.event.type == "RankReady" and not self._losses.epoch_samples:
            self._losses.epoch_samples = line.event.num_samples  # of the data set, of which an epoch may be a part
        if line.event is not None and self._began is not None:
            self._hear(line.event, line.event.at - self._began)

    def told(self) -> Trace:
        strips = tuple(
            Strip(rank=rank, place=self._places.get(rank, ""), stretches=_binned(found, self._newest))
            for rank, found in sorted(self._stretches.items())
        )
        rounds = _thinned([point for _, point in sorted(self._rounds.items())])
        found = tuple(objection for _, objection in sorted(self._objections.items()))
        losses = self._losses.told()
        return Trace(seconds=self._newest, rounds=rounds, losses=losses, strips=strips, objections=found)

    def _object(self, command: _Command) -> None:
        text = "; ".join(objections(command.reason))
        if text and command.rounds:
            number = command.rounds[0][0]
            self._objections[number] = Objection(round=number, anchor=command.anchor, text=text)

    def _hear(self, event: _Event, seconds: float) -> None:
        if event.type == "RankReady":
            self._returned[event.rank] = seconds
        if event.type not in ("WindowDone", "AveragingDone"):
            return
        before = self._rounds.get(event.round)
        if event.round:
            self._rounds[event.round] = RoundPoint(
                round=event.round,
                seconds=seconds,
                anchor=self._anchors.get(event.round) or None,
                divergence=max(event.divergence, before.divergence if before else 0.0),
            )
        if event.type == "WindowDone":
            self._losses.report(event.round, seconds, event.samples, event.loss_sum)
            self._newest = seconds
            found = self._stretches.setdefault(event.rank, [])
            start = self._returned.pop(event.rank, found[-1].end if found else 0.0)
            parts = (event.compute_ms, event.data_wait_ms, event.exposed_ms, event.idle_ms)
            found.append(_stretch(start, seconds, parts))


def _lines(path: Path) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    for line in whole_lines(path):
        yield decode(line)


def _stretch(start: float, end: float, parts_ms: Sequence[float]) -> _Stretch:
    """Parts that come to more than the stretch (a report travels, too) are scaled to it; what is left is the rest."""
    known = sum(parts_ms) / 1000.0
    length = end - start
    scale = min(1.0, length / known) / 1000.0 if known > 0.0 else 0.0
    rest = max(0.0, length - known)
    return _Stretch(start, end, (*(part * scale for part in parts_ms), rest))


def _binned(stretches: Sequence[_Stretch], seconds: float) -> tuple[tuple[float, ...], ...]:
    """Equal bins over the run, each with the mean of what lies in it."""
    if seconds <= 0.0:
        return ()
    width = seconds / NUM_BINS
    bins = [[0.0] * len(ACTIVITIES) for _ in range(NUM_BINS)]
    for stretch in stretches:
        length = stretch.end - stretch.start
        first, last = int(stretch.start / width), min(NUM_BINS - 1, int(stretch.end / width))
        for number in range(first, last + 1) if length > 0.0 else ():
            shared = min(stretch.end, (number + 1) * width) - max(stretch.start, number * width)
            for i, part in enumerate(stretch.parts):
                bins[number][i] += part / length * max(0.0, shared) / width
    return tuple(tuple(round(part, 4) for part in parts) for parts in bins)


def _thinned(points: Sequence[RoundPoint]) -> tuple[RoundPoint, ...]:
    """At most MAX_POINTS: of neighbours the last one stands, with the largest divergence of all of them."""
    size = -(-len(points) // MAX_POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return tuple(
        msgspec.structs.replace(group[-1], divergence=max(point.divergence for point in group)) for group in groups
    )
