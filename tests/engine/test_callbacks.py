"""What the callback rank does: the trial batch, the split and the figures that the job names."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.engine.callbacks import Callbacks
from flodl.engine.precision import Precision
from flodl.spec.job import EvalConfig

CPU = torch.device("cpu")
TRAIN, HELD_OUT = TensorDataset(torch.full((6, 1), 1.0)), TensorDataset(torch.full((6, 1), 2.0))


class Step:
    """Tells the mean and its root; counts its batches."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        raise AssertionError("metrics are there")

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        self.batches += 1
        return {"loss": batch[0].mean(), "root": batch[0].mean().sqrt(), "nothing": batch[0].mean() / 0}


def callbacks(step: Any, **config: Any) -> Callbacks:
    built: Any = SimpleNamespace(
        model=nn.Linear(1, 1),
        step=step,
        train=TRAIN,
        eval=HELD_OUT,
        batch_size=2,
        slice_size=None,
        precision=Precision(),
    )
    rule: Any = SimpleNamespace(consensus_in=nullcontext)
    return Callbacks(SimpleNamespace(), rule, built, CPU, EvalConfig(**config))  # type: ignore[arg-type]


def test_only_the_named_figures_are_kept_and_judged() -> None:
    result = callbacks(Step(), metrics=("loss",)).run("eval", 3)
    assert (result.ok, result.values, result.epoch, result.samples_done) == (True, {"loss": 2.0}, 3, 0)
    assert "nothing=inf" in callbacks(Step()).run("eval", 3).error


def test_the_split_that_the_job_names_is_judged() -> None:
    result = callbacks(Step(), metrics=("loss",), split="train").run("eval", 0, 40)
    assert (result.values, result.samples_done) == ({"loss": 1.0}, 40)


def test_the_trial_is_one_batch_and_tells_every_figure_there_is() -> None:
    step = Step()
    result = callbacks(step, metrics=("loss",)).try_batch()
    assert step.batches == 1
    assert result.ok
    assert result.values == pytest.approx({"loss": 2.0, "root": 2.0**0.5, "nothing": 0.0})


def test_a_trial_that_raises_says_what() -> None:
    def broken(model: nn.Module, batch: Any) -> Tensor:
        return batch["label"]

    result = callbacks(broken).try_batch()
    assert not result.ok
    assert result.error.startswith("TypeError: ")


def test_an_evaluation_may_be_cut_short() -> None:
    step = Step()
    assert callbacks(step, metrics=("loss",), limit_batches=1).run("eval", 0).ok
    assert step.batches == 1
    assert callbacks(step, metrics=("loss",)).run("eval", 0).ok
    assert step.batches == 1 + 3
