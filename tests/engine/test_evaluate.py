"""Evaluation tells means over samples and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.engine.evaluate import Scope, evaluate
from flodl.errors import FlodlError
from flodl.steps.classification import Classification

CPU = torch.device("cpu")


class Mean:
    """A step whose loss is the mean of the batch."""

    def __call__(self, model: nn.Module, batch: tuple[Tensor]) -> Tensor:
        return model(batch[0]).mean()


def test_means_are_weighted_by_samples_though_the_last_batch_is_short() -> None:
    values = torch.arange(10, dtype=torch.float32)
    assert evaluate(nn.Identity(), Mean(), TensorDataset(values), Scope(device=CPU, batch_size=4)) == {"loss": 4.5}


def test_metrics_of_the_step_are_told_the_same_for_every_batch_size() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(50, 6), torch.randint(0, 3, (50,)))
    model = nn.Linear(6, 3)
    told = [evaluate(model, Classification(), data, Scope(device=CPU, batch_size=size)) for size in (50, 7, 1)]
    assert set(told[0]) == {"loss", "accuracy"}
    assert told[1] == pytest.approx(told[0], rel=1e-5)
    assert told[2] == pytest.approx(told[0], rel=1e-5)


def test_a_map_style_data_set_is_evaluated_too() -> None:
    rows = [(torch.tensor([float(i)]),) for i in range(5)]
    assert evaluate(nn.Identity(), Mean(), rows, Scope(device=CPU, batch_size=2)) == {"loss": 2.0}


def test_the_model_is_in_eval_mode_and_every_module_is_put_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    model.train()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, Mean(), TensorDataset(torch.randn(8, 2)), Scope(device=CPU, batch_size=4))
    assert [model.training, model[0].training, model[1].training] == [True, True, False]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_modules_are_put_back_after_an_error_too() -> None:
    def fail(model: nn.Module, batch: Any) -> Tensor:
        assert not model.training
        raise RuntimeError("step")

    model = nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="step"):
        evaluate(model, fail, TensorDataset(torch.ones(1, 1)), Scope(device=CPU, batch_size=1))
    assert model.training


def test_no_gradient_is_left() -> None:
    model = nn.Linear(2, 1)
    evaluate(model, Mean(), TensorDataset(torch.ones(3, 2)), Scope(device=CPU, batch_size=2))
    assert all(p.grad is None for p in model.parameters())


def test_a_mean_that_is_not_finite_is_an_error_with_its_name() -> None:
    data = TensorDataset(torch.tensor([1.0, float("nan")]))
    with pytest.raises(FlodlError, match="evaluation gave loss=nan"):
        evaluate(nn.Identity(), Mean(), data, Scope(device=CPU, batch_size=1))


def test_a_figure_that_some_batches_do_not_tell_is_the_mean_over_the_others() -> None:
    class Sometimes(Mean):
        def metrics(self, model: nn.Module, batch: tuple[Tensor]) -> dict[str, Tensor]:
            mean = batch[0].mean()
            return {"mean": mean} | ({"late": mean} if mean > 2 else {})

    told = evaluate(nn.Identity(), Sometimes(), TensorDataset(torch.arange(7.0)), Scope(device=CPU, batch_size=3))
    assert told == {"mean": 3.0, "late": pytest.approx((4.0 * 3 + 6.0) / 4)}


def test_without_a_data_set_there_is_nothing_to_tell() -> None:
    assert evaluate(nn.Identity(), Mean(), None, Scope(device=CPU, batch_size=1)) == {}
