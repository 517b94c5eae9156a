"""Signals while a program's run is under way: asked once, then at once; what the program has claimed stays its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flodl import Trainer, TrainerConfig
from flodl.decide.messages import End, StopStatus
from flodl.door.handle import RunHandle
from flodl.door.signals import ProgramSignals
from flodl.errors import RunLost
from flodl.record.folder import RunFolder


class Run:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.is_over = False
        self.heard: list[str] = []

    def interrupt(self, reason: str) -> None:
        self.heard.append(reason)

    def hurry(self, reason: str) -> None:
        self.heard.append(reason)


class World:
    """Notes who asks for an end, and as what."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, StopStatus]] = []

    def request_stop(self, reason: str, status: StopStatus = "interrupted") -> None:
        self.heard.append((reason, status))

    def hurry(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in zip(before, (signal.default_int_handler, signal.SIG_DFL, signal.SIG_IGN), strict=True):
        signal.signal(number, handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_asks_and_the_second_ends_and_what_is_ignored_stays_so() -> None:
    run = Run()
    signals = ProgramSignals(run)
    signals.begin()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(number)
    assert run.heard == ["SIGTERM", "second signal (SIGINT)"]
    signals.end()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    own: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: own.append(number))
    run = Run()
    signals = ProgramSignals(run)
    signals.begin()
    signal.raise_signal(signal.SIGTERM)
    signals.end()
    assert (run.heard, own) == ([], [signal.SIGTERM])


def test_when_the_run_is_over_a_signal_is_the_programs_again() -> None:
    run = Run()
    ProgramSignals(run).begin()
    run.is_over = True
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert run.heard == []


def test_every_run_under_way_hears_a_signal_and_who_is_over_hears_none() -> None:
    first, second = Run(), Run()
    one, two = ProgramSignals(first), ProgramSignals(second)
    one.begin()
    two.begin()
    signal.raise_signal(signal.SIGINT)
    assert (first.heard, second.heard) == (["SIGINT"], ["SIGINT"])
    first.is_over = True
    one.end()
    signal.raise_signal(signal.SIGTERM)
    assert (first.heard, second.heard) == (["SIGINT"], ["SIGINT", "second signal (SIGTERM)"])
    third = ProgramSignals(Run())
    second.is_over = True  # and nobody joins it
    third.begin()
    signal.raise_signal(signal.SIGINT)
    third.end()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_waits_in_another_cell_of_a_notebook_is_heard_there_too() -> None:
    run = Run()
    signals = ProgramSignals(run)
    signals.begin()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # so does a kernel when a cell has ended
    signal.signal(signal.SIGINT, signal.default_int_handler)  # and so when the next one begins
    signals.begin()
    signal.raise_signal(signal.SIGINT)
    signals.end()
    assert run.heard == ["SIGINT"]


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_wait_that_is_broken_off_is_no_end_of_the_run(tmp_path: Path, is_waiting: bool) -> None:
    spec = Trainer.spec("mlp", "sgd", "classification", TrainerConfig(dataset="digits"))
    handle, go_on = RunHandle(spec, RunFolder.adopt(tmp_path)), threading.Event()

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def work() -> End:
        go_on.wait(30.0)
        raise RunLost("lost in the end")

    signal.signal(signal.SIGINT, interrupted)  # the program's own
    handle.begin(work)
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        handle.join() if is_waiting else handle.next_metrics()
    assert not handle.is_over
    go_on.set()
    with pytest.raises(RunLost, match="lost in the end"):
        handle.join()


def test_a_programs_own_stop_is_no_interruption_and_who_asks_first_counts(tmp_path: Path) -> None:
    spec = Trainer.spec("mlp", "sgd", "classification", TrainerConfig(dataset="digits"))
    early, late = RunHandle(spec, RunFolder.adopt(tmp_path / "a")), RunHandle(spec, RunFolder.adopt(tmp_path / "b"))
    world = World()
    early.stop("good enough")
    early.interrupt("SIGTERM")
    early.hold(world)
    assert world.heard == [("good enough", "stopped")]
    late.hold(world)
    late.interrupt("SIGTERM")
    assert world.heard[1:] == [("SIGTERM", "interrupted")]
