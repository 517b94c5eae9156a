"""The learning rate follows the samples of the whole run."""

from __future__ import annotations

import pytest
import torch

from flodl.decide.schedule import Cosine
from flodl.engine.schedule import LearningRate


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
