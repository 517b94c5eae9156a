"""A process of its own for one arm at a time: Hydra's state is global, so arms side by side need one each.

It is a fork of the launcher's process, which has no threads and no fleet: whatever task function was given runs there.
It serves one lease, and its agents stay warm from arm to arm. It ends when its orders do, or with the launcher.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hydra_plugins.flodl_ssh._workshop import Job, Outcome, Workshop, job_return, print_bug, release_fleet

__all__ = ["WATCHED", "Slot"]

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

END_SECONDS = 25.0  # a run's whole shutdown takes 20
CHUNK = 65536


class Slot:
    """The launcher's end of such a process."""

    def __init__(self, workshop: Workshop, lease: tuple[str, ...], others: Iterable[Slot]) -> None:
        self.lease = lease
        self.job: Job | None = None
        self._rest = b""
        context = get_context("fork")
        self.outcomes, theirs = context.Pipe()
        self.output, written = os.pipe()
        strangers = [self.outcomes.fileno(), self.output, *(n for slot in others for n in slot.handles)]
        self._process = context.Process(
            target=_live, args=(workshop, lease, theirs, written, strangers, os.getpid()), name="flodl-arm"
        )
        before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # until it has handlers of its own
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        os.close(written)

    @property
    def handles(self) -> tuple[int, int]:
        """What a fork must not hold open: this one would never see the end of its orders."""
        return self.outcomes.fileno(), self.output

    def give(self, job: Job) -> None:
        """Have it run a job; it is idle."""
        self.job = job
        with contextlib.suppress(OSError):  # it has died: its outcome says so
            self.outcomes.send(job)

    def outcome(self) -> Outcome:
        """What became of its job; waits for it. A process that died is the job's failure."""
        job, self.job = self.job, None
        assert job is not None
        try:
            return self.outcomes.recv()
        except (EOFError, OSError):
            self._process.join(END_SECONDS)
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
            error = RuntimeError(f"its process {how}")
            name = f"{job.index}"
            return Outcome(job=job, ret=job_return(job, error), error=error, name=name, folder=name, attempts=1)

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        """Pass a signal on to it: it ends its run as a controller of its own would."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def lines(self) -> list[str]:
        """Whole lines that it wrote since the last call, without waiting."""
        data = b""
        os.set_blocking(self.output, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.output, CHUNK):
                data += chunk
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> list[str]:
        """No more orders: it ends its agents and itself. Returns its last lines."""
        self.outcomes.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        said = [*self.lines(), *([self._rest.decode(errors="replace")] if self._rest else [])]
        os.close(self.output)
        return said


def _live(
    workshop: Workshop, lease: tuple[str, ...], orders: Connection, output: int, strangers: list[int], parent: int
) -> None:
    """The process: jobs in, outcomes out."""
    from flodl.engine.lifeline import die_with_parent

    die_with_parent(parent)
    os.setsid()  # Ctrl-C at the terminal is for the launcher, which passes it on
    for number in WATCHED:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    for handle in strangers:
        os.close(handle)
    for handle in (1, 2):
        os.dup2(output, handle)
    os.close(output)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    try:
        with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
            while True:
                _serve(workshop.run, orders.recv(), lease, orders)
    finally:
        if workshop.is_flodls:
            release_fleet()


def _serve(run: Callable[..., Outcome], job: Job, lease: tuple[str, ...], orders: Connection) -> None:
    from flodl.errors import FlodlError, Interrupted

    try:
        outcome = run(job, lease)
    except KeyboardInterrupt:
        error = Interrupted("a signal")
        name = f"{job.index}"
        outcome = Outcome(job=job, ret=job_return(job, error), error=error, name=name, folder=name, attempts=1)
    if outcome.error is not None and not isinstance(outcome.error, FlodlError):
        print_bug(outcome.error)
    orders.send_bytes(_portable(outcome))


def _portable(outcome: Outcome) -> Any:
    """The outcome for the way between two of our own processes; what cannot make it there is told in words."""
    try:
        data = ForkingPickler.dumps(outcome)
        pickle.loads(data)  # noqa: S301 - this very process wrote it
    except Exception as trouble:  # noqa: BLE001 - a foreign value may raise anything
        told = outcome.error or TypeError(f"the task returned what cannot leave its process: {trouble}")
        error = RuntimeError(f"{type(told).__name__}: {told}")
        ret = job_return(outcome.job, error)
        return ForkingPickler.dumps(Outcome(job=outcome.job, ret=ret, error=error, name=outcome.name,
                                            folder=outcome.folder, attempts=outcome.attempts))  # fmt: skip
    return data
