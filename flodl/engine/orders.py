"""What the coordinator told this rank, in order; while something is waited for, a new generation is looked out for."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from torch.distributed.distributed_c10d import Store

from flodl.decide.messages import (
    Average,
    AveragingDone,
    BundleKept,
    FormGroup,
    Goodbye,
    GroupFormed,
    RankFailed,
    RankOrder,
    RankReady,
    RunWindow,
    WindowDone,
)
from flodl.errors import RunFailed
from flodl.ports import AbandonedError

__all__ = ["Link", "Orders", "RankReport", "RegroupedError"]

RankReport = RankReady | GroupFormed | WindowDone | AveragingDone | Goodbye | RankFailed | BundleKept

LOOK_SECONDS = 0.02
TELLING_PART = 0.1  # of its patience, after which a rank says that it waits, and why

T = TypeVar("T")


class Link(Protocol):
    """What the loop needs of a link to the controller; `flodl.engine.link.RankLink` is the real one."""

    progress: int
    activity: str
    on_regroup: Callable[[int], None] | None

    def send(self, event: RankReport) -> None: ...

    def receive(self, timeout_seconds: float | None) -> RankOrder | None: ...

    def pending(self) -> bool: ...

    def store(self, generation: int) -> Store: ...

    def upload(self, files: Iterable[tuple[str, Iterable[memoryview]]]) -> None: ...

    def download(self, name: str) -> bytearray: ...


class RegroupedError(Exception):
    """A new generation was announced: what is waited for is void."""


class Orders:
    """The inbox. patience_seconds: how long a failed averaging waits for the coordinator's word before it is told."""

    def __init__(self, link: Link, patience_seconds: float = 30.0) -> None:
        self._link = link
        self._patience_seconds = patience_seconds
        self._held: deque[RankOrder] = deque()

    def next(self, timeout_seconds: float | None) -> RankOrder | None:
        """The next order; 0 takes what is there (no system call), None waits for ever."""
        if self._held:
            return self._held.popleft()
        if timeout_seconds == 0 and not self._link.pending():
            return None
        return self._link.receive(timeout_seconds)

    def wait(self, future: Future[T], *, patience_seconds: float | None = None) -> T:
        """The future's result. Raises RegroupedError as soon as a new generation is announced, unless it is there.

        An averaging that fails does not tell who died: only the coordinator knows, so its word is waited for
        (patience_seconds: another limit). Raises RunFailed when it does not come.
        """
        patience = self._patience_seconds if patience_seconds is None else patience_seconds
        while not self._regroups():
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            except (RuntimeError, AbandonedError) as error:
                self._despair(error, patience)
        if future.done() and future.exception() is None:  # it may be what this rank has told already
            return future.result()
        raise RegroupedError

    def _despair(self, error: Exception, patience_seconds: float) -> None:
        began, is_told = time.monotonic(), False
        while (waited := time.monotonic() - began) < patience_seconds:
            if self._regroups():
                return
            if not is_told and waited > patience_seconds * TELLING_PART:  # no death: it may be this rank's own trouble
                sys.stderr.write(f"warning: an averaging failed, and the coordinator has not answered: {error}\n")
                is_told = True
            time.sleep(LOOK_SECONDS)
        raise RunFailed(f"an averaging failed and no new group was formed in {patience_seconds:g} s: {error}")

    def _regroups(self) -> bool:
        while self._link.pending():
            order = self._link.receive(0)
            if order is not None:
                self._held.append(order)
        announced = any(isinstance(order, FormGroup) for order in self._held)
        if announced:
            self._held = deque(order for order in self._held if not _ends_with_its_generation(order))
        return announced


def _ends_with_its_generation(order: RankOrder) -> bool:
    """A window outlives the group that it was ordered in: whoever has not begun it yet still owes it."""
    return isinstance(order, Average) or (isinstance(order, RunWindow) and order.alone)
