"""Runs that begin in several threads of one program: one at a time, and one that cannot begin leaves nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from torch import nn

from flodl import Trainer, TrainerConfig
from flodl.engine import held
from tests.door import parts

PAUSE_SECONDS = 0.3  # long enough for another thread to come between
NO_SUCH_STACK = 1 << 46  # bytes: no thread can have it
forking: list[Callable[[], None]] = []
os.register_at_fork(before=lambda: [tell() for tell in forking])


@pytest.fixture
def without_threads() -> Iterator[Callable[[], None]]:
    def begin() -> None:
        threading.stack_size(NO_SUCH_STACK)

    yield begin
    threading.stack_size(0)


def together(*calls: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_specs_of_several_threads_are_composed_one_after_the_other_and_leave_no_hydra_behind() -> None:
    within: list[str] = []
    most: list[int] = []
    found: list[tuple[str, int]] = []

    def met(name: str) -> str:
        within.append(name)
        time.sleep(PAUSE_SECONDS)
        most.append(len(within))
        within.remove(name)
        return name

    def ask(name: str, size: int) -> None:
        config = TrainerConfig(dataset="digits", batch_size=size, overrides=(f"name=${{met:{name}}}",))
        job = Trainer.spec("mlp", "sgd", "classification", config)
        found.append((job.name, job.trainer.batch_size))

    OmegaConf.register_new_resolver("met", met, use_cache=False)
    try:
        together(lambda: ask("a", 16), lambda: ask("b", 32))
    finally:
        OmegaConf.clear_resolver("met")
    assert (sorted(found), {*most}) == ([("a", 16), ("b", 32)], {1})
    assert not GlobalHydra.instance().is_initialized()


def test_a_run_is_forked_with_what_it_holds_itself_and_one_that_cannot_begin_leaves_nothing(
    tmp_path: Path, without_threads: Callable[[], None]
) -> None:
    ready = threading.Barrier(2, action=without_threads)
    mine: list[tuple[int, int]] = []
    before, seen = _children(), threading.local()

    def before_fork() -> None:
        time.sleep(PAUSE_SECONDS)
        mine.append((seen.width, held.made(key="model").out_features))

    def begin(width: int) -> None:
        seen.width = width
        config = TrainerConfig(dataset="digits", save_path=tmp_path / str(width))
        ready.wait()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Trainer.run(lambda: nn.Linear(64, width), parts.sgd, "classification", config)

    forking.append(before_fork)
    try:
        together(lambda: begin(3), lambda: begin(5))
    finally:
        forking.remove(before_fork)
        held.hold({})
    assert sorted(mine) == [(3, 3), (5, 5)]
    assert _children() <= before


def test_a_run_that_cannot_begin_leaves_signals_to_the_program(
    tmp_path: Path, without_threads: Callable[[], None]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    without_threads()
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            Trainer.run("mlp", "sgd", "classification", TrainerConfig(dataset="digits", save_path=tmp_path / "run"))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def _children() -> set[str]:
    """Ended ones that nobody has waited for among them."""
    threads = Path("/proc/self/task").glob("*/children")
    return {pid for thread in threads for pid in thread.read_text().split()}
