"""One averaging thread per generation: what hangs in a dead group hangs here, and training goes on without it.

Neither abort nor shutdown interrupts a gloo operation, so a lane is never joined: a new generation gets a new lane,
the old one is retired and ends when its operation does. Its buffers are not used again until then.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import torch

__all__ = ["Here", "Lane"]

T = TypeVar("T")


class Lane:
    """Runs calls one after another on a thread of its own.

    niceness: added to this thread's own and inherited by the threads that libraries start from it (gloo does its work
    on such threads), so that a round beside training takes only what training leaves. device: current on this thread
    (every thread begins with device 0).
    """

    def __init__(self, name: str, *, niceness: int = 0, device: torch.device | None = None) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._niceness = niceness
        self._device = device
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call; its result or exception arrives in the future."""
        future: Future[T] = Future()

        self._calls.put(lambda: _fulfil(future, call))
        return future

    def retire(self) -> None:
        """Take no more calls; never blocks."""
        self._calls.put(None)

    def _serve(self) -> None:
        if self._niceness:
            with contextlib.suppress(OSError):  # a sandbox may refuse it: the round then competes with training
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        if self._device is not None and self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        while (call := self._calls.get()) is not None:
            call()


class Here:
    """Runs calls at once, on the thread of a rank that is alone: it waits for nobody.

    A second thread that computes would slow training down on a CPU: where the threads that OpenMP manages outnumber
    the cores, it puts them to sleep after each operation. (Small steps on two cores took three times as long.)
    """

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call; its result or exception is in the future."""
        future: Future[T] = Future()
        _fulfil(future, call)
        return future

    def retire(self) -> None:
        """Nothing is under way."""


def _fulfil(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  whatever it is belongs to who waits for the future
        future.set_exception(error)
