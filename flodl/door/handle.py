"""A run under way, as the program that started it holds it. The run itself is on a thread of this process.

The thread is no daemon: a program that ends without `join` waits for its run.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  pyright: ignore[reportUnusedImport]  see _before_exit
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flodl.decide.messages import CallbackResult, Command, End, EpochEnded, Event, Goodbye, StopStatus, WindowDone
from flodl.decide.totals import EpochMetrics
from flodl.door.config import EvalResultFn, MetricsFn
from flodl.door.signals import ProgramSignals
from flodl.door.telling import Telling
from flodl.engine.signals import Stoppable
from flodl.errors import FlodlError, RunLost
from flodl.record.folder import RunFolder
from flodl.spec.job import JobSpec
from flodl.tasks import failure

if TYPE_CHECKING:
    from flodl.engine.callables import Tensor

__all__ = ["RunHandle", "TrainedState"]

POLL_SECONDS = 0.2  # Ctrl-C is seen between two looks


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainedState:
    """What a run has come to: the consensus of its last averaging, under the model's own names, on the CPU.

    params, buffers: together they are the model's state_dict (tied tensors stand under each of their names). folder:
    the run folder.
    """

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]
    folder: Path

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """For `model.load_state_dict`."""
        return {**self.params, **self.buffers}

    def __repr__(self) -> str:
        """In short: a notebook shows it at the end of a cell."""
        sizes = f"{len(self.params)} params of {sum(map(_size, self.params.values())):,} numbers"
        return f"TrainedState({sizes}, {len(self.buffers)} buffers, {self.folder})"


class RunHandle:
    """Made by `Trainer.run`. spec: what runs. folder: where its files lie."""

    def __init__(
        self,
        spec: JobSpec,
        folder: RunFolder,
        *,
        metrics_fn: MetricsFn | None = None,
        eval_result_fn: EvalResultFn | None = None,
    ) -> None:
        self.spec = spec
        self.folder = folder.path
        self._metrics_fn, self._eval_result_fn = metrics_fn, eval_result_fn
        self._telling = Telling(self._misled)
        self._record = folder
        self._epochs: queue.SimpleQueue[EpochMetrics] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._world: Stoppable | None = None
        self._asked: tuple[str, StopStatus] | None = None  # the first stop: it is the one that counts
        self._hurry_reason = ""
        self._signals = ProgramSignals(self)
        self._end: End | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()  # Python 3.11 takes a thread for dead whose join() a Ctrl-C has broken off
        self._is_joined = False

    def __repr__(self) -> str:
        return f"RunHandle({self.folder}, {'over' if self.is_over else 'under way'})"

    def next_metrics(self) -> EpochMetrics | None:
        """Wait for the next epoch's figures; None once the run is over and all were taken."""
        self._hear_signals()
        while True:
            is_over = self.is_over
            try:
                return self._epochs.get(timeout=0 if is_over else POLL_SECONDS)
            except queue.Empty:
                if is_over:
                    return None

    def poll_metrics(self) -> list[EpochMetrics]:
        """The figures of the epochs that have ended since the last call; does not wait."""
        found: list[EpochMetrics] = []
        while not self._epochs.empty():
            found.append(self._epochs.get())
        return found

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, one way or another."""
        return self._over.is_set()

    def stop(self, reason: str = "the program asked for it") -> None:
        """Ask for the end at the next averaging, saved: the run is `stopped`, and `join` returns what there is.

        Safe in any thread. Where nothing was trained yet there is nothing to return: `join` raises RunLost.
        """
        self._ask(str(reason), "stopped")  # whatever was handed in: this is no time to refuse

    def join(self) -> TrainedState:
        """Wait for the end and return what was trained.

        A run that was stopped by `stop` or a rule has a state, too. Raises the FlodlError that the command line would
        end with (ConfigError, NotReady, RunFailed, RunLost, Interrupted), or what a callback of this program raised.
        """
        if self._telling.is_here:
            raise RuntimeError("join() is called by a function that the run waits for; stop() ends the run from there")
        self._hear_signals()
        while not self._over.wait(POLL_SECONDS):  # in pieces: a signal is heard between two of them
            pass
        self._is_joined = True
        self._signals.end()
        if (error := self._telling.error or self._error) is not None:
            raise error.with_traceback(None) if isinstance(error, FlodlError) else error  # its words say it all
        assert self._end is not None
        error = failure(self._end)
        if error is not None:
            error.is_told = True  # the run's summary ends with it
            raise error
        return _state(self._record, self.spec, self._end)

    # ------------------------------------------------------------------------------------------------- for Trainer

    def begin(self, work: Callable[[], End]) -> RunHandle:
        """Carry the run out beside the program. Raises RuntimeError where it may have no more threads."""

        def run() -> None:
            try:
                self._end = work()
            except BaseException as error:  # noqa: BLE001  raised again by `join`
                self._error = error
            finally:
                self._telling.end(lambda: bool(self._hurry_reason))
                with self._lock:
                    self._world = None  # a notebook keeps its handles
                self._over.set()

        self._signals.begin()
        try:
            threading.Thread(target=run, name="flodl-run").start()
        except RuntimeError:
            self._signals.end()  # there is no run that could hear them
            raise
        _before_exit(self._wait_unjoined)
        return self

    def hold(self, world: Stoppable) -> None:
        """The run can be stopped from now on."""
        with self._lock:
            self._world = world
            if self._asked is not None:
                world.request_stop(*self._asked)
            if self._hurry_reason:
                world.hurry(self._hurry_reason)

    def observe(self, event: Event, commands: Sequence[Command]) -> None:
        """A listener of drive.run, on the run's thread."""
        for command in commands:
            if isinstance(command, EpochEnded):
                self._epochs.put(command.metrics)
                if self._metrics_fn is not None:
                    self._telling.tell("metrics_fn", self._metrics_fn, command.metrics)
        if isinstance(event, WindowDone | Goodbye) and self._eval_result_fn is not None:
            for result in filter(_is_evaluation, event.callbacks):
                self._telling.tell("eval_result_fn", self._eval_result_fn, result.epoch, result.values)

    def interrupt(self, reason: str) -> None:
        """The program was told to end: the run ends at its next averaging, saved, and `join` raises Interrupted."""
        self._ask(reason, "interrupted")

    def hurry(self, reason: str) -> None:
        """It was told again: everything ends now."""
        self._hurry_reason = reason
        world = self._world
        if world is not None:
            world.hurry(reason)

    def _hear_signals(self) -> None:
        """The program waits: whoever interrupts that means the run."""
        if not self.is_over:
            self._signals.begin()

    def _wait_unjoined(self) -> None:
        """The program ends: its run goes on to its end first, and what nobody has joined for is told."""
        self._over.wait()
        if self._error is not None and not self._is_joined:
            sys.stderr.write(f"error: {self._error}\n")

    def _misled(self, name: str, error: BaseException) -> None:
        """A function of the program raised: what was trained is saved, and `join` raises it."""
        self.stop(f"{name} raised {type(error).__name__}: {error}")

    def _ask(self, reason: str, status: StopStatus) -> None:
        with self._lock:  # reentrant: a signal may come while it is held
            self._asked = self._asked or (reason, status)
            if self._world is not None:
                self._world.request_stop(reason, status)


def _before_exit(wait: Callable[[], None]) -> None:
    """Call it when the interpreter begins to end, before pools take no more work: the last that is registered there is
    the first to be called, and theirs is registered by now. (There is no public way in; without it, a thread that is
    no daemon is waited for, too, but in a process in which no pool works any more.)"""
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(wait)


def _size(tensor: Tensor) -> int:
    return tensor.numel()


def _is_evaluation(result: CallbackResult) -> bool:
    return result.name == "eval" and result.ok and bool(result.values)


def _state(folder: RunFolder, job: JobSpec, end: End) -> TrainedState:
    from flodl.engine.trained import trained

    if end.status == "stopped" and job.loop is None and not folder.weights_path.exists():
        raise RunLost(f"{folder.path}: the run ended before anything was trained: {end.reason}")
    params, buffers = trained(folder, job.checkpoint, needed=job.loop is None)
    return TrainedState(params=params, buffers=buffers, folder=folder.path)
