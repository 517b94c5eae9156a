"""Figures that are told to a program: in order, beside the run, and once no more when one of them was not taken."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from flodl import RunHandle, RunLost, TrainedState, Trainer, TrainerConfig
from flodl.decide.messages import End
from flodl.door.telling import Telling
from flodl.record.folder import RunFolder
from tests.record.figures import totals


def test_what_is_told_arrives_in_order_and_a_slow_one_holds_nobody_up() -> None:
    free, heard = threading.Event(), list[int]()
    telling = Telling(lambda name, error: None)
    telling.tell("first", free.wait, 30.0)
    for number in range(3):
        telling.tell("later", heard.append, number)
    assert heard == []
    telling.end(lambda: True)
    assert heard == [], "in a hurry nobody is waited for"
    free.set()
    telling.end(lambda: False)
    assert heard == [0, 1, 2]


def test_one_that_raises_stops_the_run_and_is_raised_by_join_when_all_is_saved(tmp_path: Path) -> None:
    spec = Trainer.spec("mlp", "sgd", "classification", TrainerConfig(dataset="digits"))
    handle = RunHandle(spec, RunFolder.adopt(tmp_path))
    asked: list[str] = []

    class World:
        def request_stop(self, reason: str, status: str = "interrupted") -> None:
            asked.append(f"{status}: {reason}")

        def hurry(self, reason: str) -> None:
            raise AssertionError(reason)

    def work() -> End:
        handle.hold(World())
        for number in range(3):
            handle._telling.tell("metrics_fn", heard, number)
        return End(status="stopped", exit_code=0, totals=totals(), reason="metrics_fn raised")

    def heard(number: int) -> None:
        with pytest.raises(RuntimeError, match="a function that the run waits for; stop"):
            handle.join()
        raise ArithmeticError(f"figure {number}")

    with pytest.raises(ArithmeticError, match="figure 0"):
        handle.begin(work).join()
    assert asked == ["stopped: metrics_fn raised ArithmeticError: figure 0"]


def test_a_run_that_was_stopped_before_anything_was_trained_says_so(tmp_path: Path) -> None:
    spec = Trainer.spec("mlp", "sgd", "classification", TrainerConfig(dataset="digits"))
    handle = RunHandle(spec, RunFolder.adopt(tmp_path))
    handle.begin(
        lambda: End(status="stopped", exit_code=0, totals=totals(), reason="never mind, before the first window")
    )
    with pytest.raises(RunLost, match="ended before anything was trained: never mind"):
        handle.join()
    assert repr(handle) == f"RunHandle({tmp_path}, over)"


def test_a_state_is_shown_in_short() -> None:
    state = TrainedState(params={"w": torch.zeros(40, 30)}, buffers={}, folder=Path("runs/a"))
    assert repr(state) == "TrainedState(1 params of 1,200 numbers, 0 buffers, runs/a)"
