"""The learning rate of a run: a schedule of global progress, written into the optimizer.

Progress counts samples of all ranks, so a rate is the same for every world size. flodl's schedules are functions of
progress; a torch scheduler is stepped once per `batch_size` samples of the run (as one process would), and what it
does is tabled before training begins: rates are looked up, forwards and backwards, and its errors come at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from flodl.errors import ConfigError, Problem

__all__ = ["LearningRate", "TorchSchedule"]

EDGE = 1e-6  # samples by which a position between two batches may be off
VANISHED = 1e-3  # of the highest rate


@dataclass(frozen=True)
class TorchSchedule:
    """A torch scheduler that waits for its optimizer. name: its import path, for messages."""

    make: Callable[[Optimizer], Any]
    name: str


class LearningRate:
    """Sets each parameter group's rate for a place in the run. Groups keep their base rate as "initial_lr".

    schedule: progress 0..1 -> factor of the base rate, or a `TorchSchedule`. batch_size: the job's. say: is told of one
    that seems to count epochs. Raises ConfigError where the schedule does not fit the run.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Callable[[float], float] | TorchSchedule,
        total_samples: int,
        batch_size: int = 1,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.optimizer = optimizer
        self.total_samples = total_samples
        self._batch_size = batch_size
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self._table: list[_Column] = []
        if isinstance(schedule, TorchSchedule):
            self._table = _tabled(schedule, optimizer, max(1, total_samples // batch_size))
            _doubt(schedule, self._table, say)
        else:
            over = getattr(schedule, "over", None)  # a warm-up in samples becomes one in progress
            self._factor: Callable[[float], float] = schedule if over is None else over(total_samples)

    def at(self, samples: float) -> float:
        """Set the rates for a batch before which `samples` samples of the run were dealt; returns the first group's."""
        if self._table:
            for column in self._table:
                column.set(int((samples + EDGE) // self._batch_size))
        else:
            factor = self._factor(min(1.0, samples / self.total_samples))
            for group in self.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        return float(self.optimizer.param_groups[0]["lr"])


class _Column:
    """One knob of one group, by step: its rate, and momentum or the first beta where the scheduler moves it too."""

    def __init__(self, group: dict[str, Any], shadow: dict[str, Any], knob: str) -> None:
        self.values = array("d")
        self.knob = knob
        self._group, self._shadow = group, shadow

    def note(self) -> None:
        """One step more."""
        value = self._shadow[self.knob]
        self.values.append(float(value[0] if self.knob == "betas" else value))

    @property
    def moves(self) -> bool:
        """The rate always counts as moving."""
        return self.knob == "lr" or any(value != self.values[0] for value in self.values)

    def set(self, step: int) -> None:
        """Write it into the optimizer; past the end the last value stays."""
        value = self.values[min(step, len(self.values) - 1)]
        self._group[self.knob] = (value, *self._group["betas"][1:]) if self.knob == "betas" else value


class _Shadow(Optimizer):
    """An optimizer of the same groups, over nothing: a scheduler may do to it what it likes."""

    def __init__(self, optimizer: Optimizer) -> None:
        groups = [
            {name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups
        ]
        for group in groups:
            group["lr"] = group.pop("initial_lr")
            group["params"] = [torch.zeros(1, requires_grad=True)]
        super().__init__(groups, dict(optimizer.defaults))
        self._opt_called = True  # schedulers warn where no step was taken before theirs

    def step(self, closure: Any = None) -> Any:
        """There is nothing to move."""


def _tabled(schedule: TorchSchedule, optimizer: Optimizer, num_steps: int) -> list[_Column]:
    """Run the scheduler over the whole run."""
    shadow = _Shadow(optimizer)
    try:
        scheduler = schedule.make(shadow)
        _check(scheduler)
        columns = [
            _Column(group, there, knob)
            for group, there in zip(optimizer.param_groups, shadow.param_groups, strict=True)
            for knob in ("lr", "momentum", "betas")
            if knob in there
        ]
        _fill(columns, scheduler, num_steps)
    except ConfigError:
        raise
    except Exception as error:
        raise _refused(schedule, f"cannot run {num_steps} steps: {type(error).__name__}: {error}") from error
    return [column for column in columns if column.moves]


def _doubt(schedule: TorchSchedule, columns: Sequence[_Column], say: Callable[[str], None]) -> None:
    """Warn of a rate that is next to nothing after half of the run: such a scheduler was written for epochs."""
    rates = next(column.values for column in columns if column.knob == "lr")
    middle = rates[len(rates) // 2]
    if middle < VANISHED * max(rates):
        say(f"warning: scheduler={schedule.name}: after half of the run's {len(rates)} steps the rate is {middle:.2g}, "
            f"from {max(rates):.2g}: it is stepped once per batch, not per epoch")  # fmt: skip


def _fill(columns: Sequence[_Column], scheduler: LRScheduler, num_steps: int) -> None:
    for step in range(num_steps):
        for column in columns:
            column.note()
        if step < num_steps - 1:
            scheduler.step()


def _check(scheduler: object) -> None:
    constraint, remedy = "", ""
    if isinstance(scheduler, ReduceLROnPlateau):
        constraint, remedy = "follows a figure, not the progress of a run", "choose another one, or use stop.early"
    elif not isinstance(scheduler, LRScheduler):
        constraint = "is no learning-rate scheduler of torch"
        remedy = "leave _partial_ out where the schedule is a function of progress, 0 to 1"
    if constraint:
        kind = type(scheduler).__qualname__
        raise ConfigError([Problem(key="scheduler", value=kind, constraint=constraint, remedy=remedy)])


def _refused(schedule: TorchSchedule, constraint: str) -> ConfigError:
    remedy = "its steps count batches of trainer.batch_size over the whole run"
    return ConfigError([Problem(key="scheduler", value=schedule.name, constraint=constraint, remedy=remedy)])
