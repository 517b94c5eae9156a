"""The learning rate follows the samples of the whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from flodl.decide.schedule import Constant, Cosine
from flodl.engine.schedule import LearningRate, TorchSchedule
from flodl.errors import ConfigError


def groups() -> torch.optim.SGD:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return torch.optim.SGD([{"params": weights[:1], "lr": 0.4}, {"params": weights[1:], "lr": 0.04}], lr=1.0)


def test_every_group_keeps_its_own_base_rate() -> None:
    optimizer = groups()
    rate = LearningRate(optimizer, Cosine(), total_samples=1000)
    assert rate.at(500) == pytest.approx(0.2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2, 0.02])
    assert rate.at(0) == pytest.approx(0.4)


def test_samples_past_the_end_count_as_the_end() -> None:
    assert LearningRate(groups(), Cosine(floor=0.1), total_samples=1000).at(1500) == pytest.approx(0.04)


def test_a_base_rate_that_was_set_before_is_kept() -> None:
    optimizer = groups()
    LearningRate(optimizer, Cosine(), total_samples=10).at(10)
    assert LearningRate(optimizer, Cosine(), total_samples=10).at(0) == pytest.approx(0.4)


def curve(
    schedule: Any, places: Sequence[float], *, total: int = 1000, batch_size: int = 10, lr: float = 0.4
) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)
    rate = LearningRate(optimizer, schedule, total, batch_size)
    return [rate.at(samples) for samples in places]


def reference(make: Callable[[torch.optim.Optimizer], LRScheduler], steps: int, lr: float = 0.4) -> list[float]:
    """What one process would do: step once per batch."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)
    scheduler = make(optimizer)
    rates: list[float] = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


MAKES: dict[str, Callable[[Any], LRScheduler]] = {
    "multistep": lambda optimizer: MultiStepLR(optimizer, [20, 60], gamma=0.5),
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, T_max=100),
    "one cycle": lambda optimizer: OneCycleLR(optimizer, max_lr=0.4, total_steps=100),
    "chained": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, total_iters=10), CosineAnnealingLR(optimizer, 90)], milestones=[10]
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", MAKES)
def test_a_torch_scheduler_does_what_it_does_in_one_process(name: str) -> None:
    schedule = TorchSchedule(MAKES[name], name)
    assert curve(schedule, range(0, 1000, 10)) == pytest.approx(reference(MAKES[name], 100))


def test_a_torch_scheduler_follows_samples_forwards_and_backwards() -> None:
    schedule = TorchSchedule(MAKES["multistep"], "multistep")
    assert curve(schedule, [199.0, 200.0, 605.0, 0.0, 5000.0]) == pytest.approx([0.4, 0.2, 0.1, 0.4, 0.1])
    assert curve(schedule, [199.9999999999]) == pytest.approx([0.2]), "a position between windows is not exact"


def test_a_momentum_that_the_scheduler_moves_is_moved_too() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    rate = LearningRate(optimizer, TorchSchedule(MAKES["one cycle"], "one cycle"), 1000, 10)
    rate.at(0)
    first = optimizer.param_groups[0]["momentum"]
    rate.at(300)
    assert first == pytest.approx(0.95)
    assert optimizer.param_groups[0]["momentum"] == pytest.approx(0.85, abs=0.01)


def test_every_group_is_scheduled_from_its_own_base() -> None:
    optimizer = groups()
    rate = LearningRate(optimizer, TorchSchedule(MAKES["multistep"], "multistep"), 1000, 10)
    assert rate.at(250) == pytest.approx(0.2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2, 0.02])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=50), "cannot run 100 steps: ValueError"),
        (lambda optimizer: MultiStepLR(optimizer, 7), "cannot run 100 steps: TypeError"),
        (ReduceLROnPlateau, "follows a figure"),
        (lambda optimizer: "cosine", "is no learning-rate scheduler of torch"),
    ],
)
def test_a_scheduler_that_does_not_fit_the_run_is_refused_before_it(make: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        curve(TorchSchedule(make, "mine"), [0.0])


def test_a_warm_up_in_samples_is_as_long_in_every_run() -> None:
    for total in (1000, 4000):
        assert curve(Constant(warmup_samples=200), [0, 100, 200, 900], total=total) == pytest.approx(
            [0.04, 0.22, 0.4, 0.4]
        )
    with pytest.raises(ConfigError, match=r"scheduler.warmup_samples=1000: the whole run has 1000 samples"):
        curve(Constant(warmup_samples=1000), [0])


def test_a_schedule_that_was_written_for_epochs_is_doubted_in_words() -> None:
    def said(step_size: int) -> list[str]:
        told: list[str] = []
        schedule = TorchSchedule(lambda optimizer: StepLR(optimizer, step_size, 0.1), "mine.falling")
        LearningRate(groups(), schedule, 1000, 10, told.append)
        return told

    assert said(step_size=30) == []
    (words,) = said(step_size=5)
    assert words.startswith("warning: scheduler=mine.falling: after half of the run's 100 steps the rate is 4e-11")
