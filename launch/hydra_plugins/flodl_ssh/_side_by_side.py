"""Jobs side by side, each on hosts of its own. The launcher deals, waits, passes lines and signals on."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from flodl.errors import ConfigError, Interrupted, Problem
from flodl.record.text import clean
from hydra_plugins.flodl_ssh._board import Board
from hydra_plugins.flodl_ssh._leases import Leases
from hydra_plugins.flodl_ssh._slot import WATCHED, Slot
from hydra_plugins.flodl_ssh._workshop import Job, Workshop

__all__ = ["SideBySide"]

log = logging.getLogger(__name__)


class SideBySide:
    """Processes for arms, kept from batch to batch of a sweep."""

    def __init__(self, workshop: Workshop, board: Board, most: int) -> None:
        self._workshop = workshop
        self._board = board
        self._most = most
        self._leases = Leases(most)
        self._slots: list[Slot] = []
        self._signals = 0
        weakref.finalize(self, _close, self._slots)  # Hydra tells a launcher when a batch begins, never that it was all

    def plan(self, jobs: Sequence[Job]) -> dict[Job, tuple[str, ...]] | None:
        """The hosts that each job may choose from; None where no two could run at a time.

        Raises ConfigError where they would be in each other's way.
        """
        if self._most == 1 or not jobs:
            return None
        configs = {job: self._composed(job) for job in jobs}
        hosts = {job: hosts_of(config) for job, config in configs.items()}
        if len({host for cluster in hosts.values() for host in cluster}) == 1:
            log.info("the cluster has one host: arms run one after another")
            return None
        ports = {str(OmegaConf.select(config, "cluster.controller.port", default=0)) for config in configs.values()}
        if ports != {"0"}:
            raise ConfigError([Problem(key="cluster.controller.port", value=" or ".join(sorted(ports - {"0"})),
                                       constraint="arms side by side cannot share a port",
                                       remedy="use 0 (free ones), or hydra.launcher.max_parallel=1")])  # fmt: skip
        return hosts

    def run(self, jobs: Mapping[Job, tuple[str, ...]]) -> None:
        """Run them all, as many at a time as their hosts allow."""
        waiting = dict(jobs)
        with self._signals_heard():
            while waiting or self._busy():
                if self._board.is_over:
                    waiting.clear()
                self._deal(waiting)
                self._listen()

    def _composed(self, job: Job) -> DictConfig:
        try:
            return self._workshop.compose(job)
        except Exception:  # noqa: BLE001 - it fails where it runs, and is told there
            return OmegaConf.create()

    def _busy(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.job is not None]

    def _deal(self, waiting: dict[Job, tuple[str, ...]]) -> None:
        """Begin whatever can begin now."""
        for job, hosts in tuple(waiting.items()):
            lease = self._leases.take(hosts)
            if lease is not None:
                del waiting[job]
                log.info(f"arm {job.index}{' on ' if lease else ''}{', '.join(lease)}: {job.shown}")
                self._slot(lease).give(job)

    def _slot(self, lease: tuple[str, ...]) -> Slot:
        """The idle process that has these hosts warm, else a new one."""
        idle = [slot for slot in self._slots if slot.job is None]
        for slot in idle:
            if slot.lease == lease and slot.is_alive:
                return slot
            if set(slot.lease) & set(lease) or not slot.is_alive:
                self._drop(slot)
        slot = Slot(self._workshop, lease, self._slots)
        self._slots.append(slot)
        return slot

    def _drop(self, slot: Slot) -> None:
        self._slots.remove(slot)
        _pass_on(slot, slot.close())

    def _listen(self) -> None:
        """Wait for a line or an outcome of any arm."""
        by_handle: dict[Any, Slot] = {}
        for slot in self._busy():
            by_handle |= {slot.outcomes: slot, slot.output: slot}
        for handle in wait(by_handle) if by_handle else ():
            slot = by_handle[handle]
            if handle is slot.outcomes and slot.job is not None:
                outcome = slot.outcome()
                _pass_on(slot, slot.lines(), outcome.job)
                self._leases.give_back(slot.lease)
                self._board.add(outcome)
                if not slot.is_alive:
                    self._drop(slot)
            elif handle is not slot.outcomes and slot in self._slots:
                _pass_on(slot, slot.lines(), slot.job)

    # ------------------------------------------------------------------------------------------------------ signals

    @contextmanager
    def _signals_heard(self) -> Iterator[None]:
        """The first signal lets running arms end in order and begins no other; the second ends them at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        watched = [n for n in WATCHED if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in watched}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._board.stop(Interrupted(f"not started: {signal.Signals(number).name}"))
        for slot in self._busy():
            slot.signal(signal.SIGINT if self._signals <= 2 else signal.SIGKILL)


def hosts_of(config: DictConfig) -> tuple[str, ...]:
    """Labels of an arm's hosts; none for a task that has no cluster."""
    workers = OmegaConf.select(config, "cluster.workers", default=None) or ()
    return tuple(str(worker.host) for worker in workers)


def _pass_on(slot: Slot, lines: Sequence[str], job: Job | None = None) -> None:
    """Show what an arm wrote."""
    head = f"[arm {job.index}]" if job is not None else f"[{', '.join(slot.lease) or 'arm'}]"
    for line in lines:
        sys.stdout.write(f"{head} {clean(line)}\n")
    sys.stdout.flush()


def _close(slots: list[Slot]) -> None:
    """End the processes and what they keep warm."""
    for slot in slots:
        _pass_on(slot, slot.close())
    slots.clear()
