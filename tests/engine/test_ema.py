"""The consensus's moving average: by samples, whatever the cadence, from the first round on, shown and put back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import Outcome, RoundOrder
from flodl.engine.callbacks import Callbacks
from flodl.engine.functions import Functions
from flodl.engine.precision import Precision
from flodl.spec.job import EvalConfig
from tests.engine.scalars import Scalar

CPU = torch.device("cpu")


def outcome(samples: int, *, moved: bool = True) -> Outcome:
    return Outcome(RoundOrder(1, 1, 1.0, samples=samples), moved, 0.0, "", 0.0, 0.0, 0.0)


def followed(rule: Any, model: Any, ema: Ema, rounds: list[tuple[float, int]]) -> tuple[float, float]:
    """(weight, buffer) of the average after rounds of (consensus, samples)."""
    for value, samples in rounds:
        with torch.no_grad():
            model.weight.fill_(value)
            model.level.fill_(-value)
        rule.start()
        ema.follow(rule, outcome(samples))
    return float(ema.flat.parameters[0]), float(ema.flat.buffers[0])


@pytest.mark.parametrize("kind", [ParameterRule, GradientRule])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_round_weighs_half_after_the_half_life_and_weights_sum_to_one(kind: Any, dtype: torch.dtype) -> None:
    model = Scalar(100.0, dtype)
    rule = kind(model, torch.optim.SGD(model.parameters(), lr=1.0))
    weight, level = followed(rule, model, Ema(model, 20), [(1.0, 20), (2.0, 20), (4.0, 20)])
    assert (weight, level) == pytest.approx(((0.25 + 2 * 0.5 + 4) / 1.75, -(0.25 + 2 * 0.5 + 4) / 1.75))


def test_the_same_samples_in_more_rounds_give_the_same_average() -> None:
    found = []
    for parts in (1, 5):
        model = Scalar(0.0)
        rule = ParameterRule(model, torch.optim.SGD(model.parameters(), lr=1.0))
        rounds = [(value, 100 // parts) for value in (1.0, 3.0) for _ in range(parts)]
        found.append(followed(rule, model, Ema(model, 70), rounds))
    assert found[0] == pytest.approx(found[1])


def test_a_round_that_changed_nothing_is_none() -> None:
    model = Scalar(3.0)
    rule, ema = ParameterRule(model, torch.optim.SGD(model.parameters(), lr=1.0)), Ema(model, 10)
    ema.follow(rule, outcome(10, moved=False))
    assert not ema.has_begun
    rule.start()
    ema.follow(rule, outcome(10))
    assert ema.has_begun
    assert float(ema.flat.parameters[0]) == 3.0


class Step:
    """Tells what the model holds."""

    def metrics(self, model: Any, batch: Any) -> dict[str, Tensor]:
        return {"weight": model.weight.mean(), "other": model.weight.mean() * 0}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, {"weight": 4.0, "other": 0.0, "ema_weight": 3.0, "ema_other": 0.0}),
        (("weight",), {"weight": 4.0, "ema_weight": 3.0}),
        (("ema_weight",), {"ema_weight": 3.0}),
    ],
)
def test_both_are_evaluated_and_told_apart_and_the_replica_is_put_back(
    wanted: tuple[str, ...] | None, expected: dict[str, float]
) -> None:
    model = Scalar(0.0)
    rule, ema = ParameterRule(model, torch.optim.SGD(model.parameters(), lr=1.0)), Ema(model, 10)
    followed(rule, model, ema, [(1.0, 10), (4.0, 10)])
    with torch.no_grad():
        model.weight.fill_(9.0)
    data = TensorDataset(torch.zeros(2, 1))
    built: Any = SimpleNamespace(
        model=nn.Module(),
        step=Step(),
        train=data,
        eval=data,
        batch_size=2,
        slice_size=None,
        precision=Precision(),
        functions=Functions(),
    )
    built.model, saver = model, SimpleNamespace()
    told = Callbacks(saver, rule, built, CPU, EvalConfig(metrics=wanted))  # pyright: ignore[reportArgumentType]
    told.ema = ema
    assert told.run("eval", 0).values == pytest.approx(expected)
    assert model.value == 9.0
