"""Failpoints: named places in a rank at which a test has it die, hang, fail or go slow. For tests alone.

The switch is an environment variable, read once, when this module is imported. Without it `reach` is a function that
does nothing. With it, it names a JSON file: a list of `Failpoint`s, read by each rank at the first point it passes. A
rank says on its standard error what strikes it, where and when (CLOCK_MONOTONIC: all processes of a host share it).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import msgspec

__all__ = ["ACTIONS", "POINTS", "SWITCH", "Action", "Failpoint", "Failpoints", "Point", "reach"]

SWITCH = "FLODL_FAILPOINTS"
FOREVER_SECONDS = 1e6

Point = Literal[
    "step.before",  # the batch is there
    "step.inside",  # before the user's step, where its errors are caught
    "step.after",  # its gradients are counted
    "report",  # a window's figures are about to be sent
    "average.before",  # ordered; nothing is sent yet
    "average.first",  # on the averaging thread, before anything is sent
    "average.middle",  # the sums are under way
    "average.last",  # they are there, and nobody has been told
    "average.after",  # adopted
    "group",  # a group is about to form
    "save.begin",  # a copy of the weights is about to be taken
    "save.sending",  # they are partly sent; on a thread of its own while training goes on
    "callback",  # before an evaluation or a last save
    "finish",  # training is over
]
Action = Literal["kill", "abort", "segv", "raise", "memory", "stop", "exit", "hang", "slow"]
POINTS: tuple[Point, ...] = get_args(Point)
ACTIONS: tuple[Action, ...] = get_args(Action)


class Failpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What strikes whom, where and when.

    ranks: whom. epoch, window (the number of its round): None: in any. skip: so many passes that match go by before.
    times: how often it strikes. seconds: what each pass loses (`slow`).
    """

    point: Point
    action: Action
    ranks: tuple[int, ...]
    epoch: int | None = None
    window: int | None = None
    skip: int = 0
    times: int = 1
    seconds: float = 0.05


class Failpoints:
    """What is to strike this process. path: of the plan."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._plan: list[Failpoint] | None = None
        self._passed: Counter[int] = Counter()  # number in the plan -> passes that matched
        self._rank = self._epoch = self._window = -1

    def reach(self, point: Point, rank: int = -1, epoch: int = -1, window: int = -1) -> None:
        """This process is at `point`. What is not told (-1) is as it was told last."""
        self._rank = rank if rank >= 0 else self._rank
        self._epoch = epoch if epoch >= 0 else self._epoch
        self._window = window if window >= 0 else self._window
        if self._plan is None:
            self._plan = msgspec.json.decode(self._path.read_bytes(), type=list[Failpoint])
        for number, fault in enumerate(self._plan):
            if fault.point == point and self._is_meant(fault):
                self._passed[number] += 1
                if fault.skip < self._passed[number] <= fault.skip + fault.times:
                    self._strike(fault, is_first=self._passed[number] == fault.skip + 1)

    def _is_meant(self, fault: Failpoint) -> bool:
        here = (fault.epoch in (None, self._epoch)) and (fault.window in (None, self._window))
        return here and self._rank in fault.ranks

    def _strike(self, fault: Failpoint, *, is_first: bool) -> None:
        if is_first:
            where = f"rank {self._rank}, epoch {self._epoch}, round {self._window}"
            word = f"failpoint {fault.point}: {fault.action} at {time.monotonic()!r}: {where}\n"
            os.write(2, word.encode())  # past every buffer
        _DEEDS[fault.action](fault)


def _raise(fault: Failpoint) -> None:
    raise RuntimeError(f"failpoint {fault.point}")


def _run_out_of_memory(fault: Failpoint) -> None:
    raise MemoryError(f"failpoint {fault.point}")


_DEEDS: dict[Action, Callable[[Failpoint], object]] = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "abort": lambda _: os.abort(),
    "segv": lambda _: ctypes.string_at(0),
    "raise": _raise,
    "memory": _run_out_of_memory,
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda _: os._exit(0),
    "hang": lambda _: time.sleep(FOREVER_SECONDS),
    "slow": lambda fault: time.sleep(fault.seconds),
}


def _pass_by(point: Point, rank: int = -1, epoch: int = -1, window: int = -1) -> None:
    """Nothing strikes here."""


reach = Failpoints(os.environ[SWITCH]).reach if SWITCH in os.environ else _pass_by
