"""metrics, one JSON line each: an epoch's figures when its last sample is done, an evaluation when it is known.

An epoch is often evaluated while the next one trains, so its evaluation is a line of its own:
``{"epoch": 3, "eval": {"accuracy": 0.97}}``. `read_metrics` puts the two together again. Parts of an epoch (the line
has "interval") and evaluations within one (the line has "samples_done") come before their epoch's own line; what the
GPUs did meanwhile (the line has "gpus") comes after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from flodl.decide.messages import CallbackResult, Command, EpochEnded, Event, Goodbye, IntervalEnded, WindowDone
from flodl.decide.totals import EpochMetrics, IntervalMetrics
from flodl.errors import FlodlError
from flodl.record.files import LineFile, whole_lines
from flodl.record.gpu_use import GpuLine, GpuUse

__all__ = ["LateEval", "MetricsFile", "read_gpus", "read_intervals", "read_metrics"]

_Line = TypeVar("_Line", IntervalMetrics, GpuLine)


class LateEval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An evaluation: after its epoch's line was written, or within it, when `samples_done` of the run were averaged."""

    epoch: int
    samples_done: int | None = None
    eval: dict[str, float]


class MetricsFile:
    """Writes metrics. `observe` is a listener of drive.run."""

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        self._encode = msgspec.json.Encoder().encode
        self.path = path
        self._known: dict[int, dict[str, float]] = {}  # epoch -> evaluation already written
        self._newest = 0

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """Write what this event and its commands tell about epochs and evaluations."""
        for command in commands:
            if isinstance(command, EpochEnded):
                self.append(command.metrics)
            elif isinstance(command, IntervalEnded):
                self._lines.append(self._encode(command.metrics))
        if isinstance(event, WindowDone | Goodbye):
            for result in event.callbacks:
                self._append_result(result)

    def append(self, metrics: EpochMetrics) -> None:
        """Write one epoch's figures."""
        self._newest = metrics.epoch
        self._known.setdefault(metrics.epoch, {}).update(metrics.eval)
        self._lines.append(self._encode(metrics))

    def append_eval(self, epoch: int, values: Mapping[str, float]) -> None:
        """Write an evaluation of an epoch, unless exactly that is written already."""
        if self._known.get(epoch) == dict(values):
            return
        self._known[epoch] = dict(values)
        self._lines.append(self._encode(LateEval(epoch=epoch, eval=dict(values))))

    def append_gpus(self, epoch: int, gpus: Sequence[GpuUse]) -> None:
        """Write what GPUs did up to the end of this epoch, or of a part of it."""
        self._lines.append(self._encode(GpuLine(epoch=epoch, gpus=tuple(gpus))))

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._lines.close()

    def _append_result(self, result: CallbackResult) -> None:
        if result.name != "eval" or not result.ok or not result.values:
            return
        if result.samples_done:
            within = LateEval(epoch=result.epoch, samples_done=result.samples_done, eval=dict(result.values))
            self._lines.append(self._encode(within))
        else:
            self.append_eval(self._newest if result.epoch < 0 else result.epoch, result.values)


def read_metrics(path: Path) -> list[EpochMetrics]:
    """The epochs of a metrics file in order, each with its evaluation. Torn last lines are left out."""
    epochs: dict[int, EpochMetrics] = {}
    late: dict[int, dict[str, float]] = {}
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            entry = msgspec.json.decode(line, type=dict[str, object])
            if entry.keys() & {"interval", "samples_done", "gpus"}:
                continue
            if "samples" in entry:
                metrics = msgspec.json.decode(line, type=EpochMetrics)
                epochs[metrics.epoch] = metrics
            else:
                evaluation = msgspec.json.decode(line, type=LateEval)
                late.setdefault(evaluation.epoch, {}).update(evaluation.eval)
        except msgspec.MsgspecError as error:
            raise FlodlError(f"{path}:{number}: {error}") from error
    return [
        msgspec.structs.replace(metrics, eval={**metrics.eval, **late.get(epoch, {})})
        for epoch, metrics in sorted(epochs.items())
    ]


def read_intervals(path: Path) -> list[IntervalMetrics]:
    """The parts of epochs that a metrics file tells of (trainer.reports_per_epoch), in order."""
    return _tagged(path, "interval", IntervalMetrics)


def read_gpus(path: Path) -> list[GpuLine]:
    """What a metrics file tells of GPUs, in order."""
    return _tagged(path, "gpus", GpuLine)


def _tagged(path: Path, field: str, kind: type[_Line]) -> list[_Line]:
    """The lines that hold `field`, in order."""
    found: list[_Line] = []
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            if field in msgspec.json.decode(line, type=dict[str, object]):
                found.append(msgspec.json.decode(line, type=kind))
        except msgspec.MsgspecError as error:
            raise FlodlError(f"{path}:{number}: {error}") from error
    return found
