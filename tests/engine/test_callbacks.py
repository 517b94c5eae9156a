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
from flodl.engine.functions import Functions
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
        functions=config.pop("functions", Functions()),
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


def test_a_function_of_the_users_judges_in_place_of_the_step() -> None:
    seen: list[bool] = []

    def judge(model: nn.Module) -> dict[str, float]:
        seen.append(model.training or torch.is_grad_enabled())
        return {"own": 2.0, "other": 3.0}

    own = callbacks(Step(), functions=Functions(eval=judge), metrics=("own",))
    told = own.run("eval", 1)
    assert (told.error, told.values) == ("", {"own": 2.0})
    assert own.try_batch().values == {"own": 2.0, "other": 3.0}
    assert seen == [False, False]
    bare = callbacks(Step(), functions=Functions(eval=lambda model: 0.5))
    assert bare.run("eval", 1).values == {"eval": 0.5}
    for given in (float("nan"), "much", {"a": None}):
        told = callbacks(Step(), functions=Functions(eval=lambda model, given=given: given)).run("eval", 1)
        assert not told.ok
        assert "callbacks.eval_fn gave" in told.error


def test_what_a_checkpoint_function_raises_costs_no_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    def keep(round_: int, model: nn.Module) -> None:
        raise ValueError(f"round {round_}")

    Functions(checkpoint=keep).saved(7, nn.Linear(1, 1), nullcontext())
    assert capsys.readouterr().err == "warning: callbacks.checkpoint_fn failed: ValueError: round 7\n"
