"""What went wrong elsewhere when replicas were averaged: each line is a test."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from torch import nn

from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import RoundOrder
from flodl.ports import AbandonedError
from tests.engine.scalars import Scalar, Team

NAN = float("nan")
PARAMETER_RULES = pytest.mark.parametrize("rule", [ParameterRule, ElasticRule], ids=["cadence", "async"])


class Normed(nn.Module):
    """A normalisation layer's statistics beside one weight."""

    def __init__(self, mean: float, variance: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.norm.running_mean = torch.tensor([mean])
        self.norm.running_var = torch.tensor([variance])
        self.norm.num_batches_tracked = torch.tensor(int(mean))

    @property
    def value(self) -> float:
        return float(self.norm.weight.detach())


def statistics(team: Team) -> list[tuple[float, float]]:
    return [(float(m.norm.running_mean), float(m.norm.running_var)) for m in team.models]


@PARAMETER_RULES
@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_a_rank_that_is_not_finite_is_left_out_and_adopts_the_consensus(rule: Any, value: float) -> None:
    team = Team(rule, [Scalar(1.0), Scalar(value), Scalar(5.0)])
    team.snapshot()
    outcomes = team.average([1, 1, 1])
    assert [outcome.nonfinite for outcome in outcomes] == ["", "weight", ""]
    assert team.adopt(outcomes) == [3.0, 3.0, 3.0]
    assert [float(model.level) for model in team.models] == [3.0] * 3


@PARAMETER_RULES
def test_an_optimizer_state_that_is_not_finite_does_not_ruin_the_adopted_weights(rule: Any) -> None:
    team = Team(rule, [Scalar(1.0), Scalar(1.0)])
    team.optimizers[1].param_groups[0]["momentum"] = 0.9
    team.models[1].weight.grad = torch.tensor([NAN])
    team.rules[1].step(1)
    team.round_of([1, 1])
    team.models[1].weight.grad = torch.tensor([0.25])
    team.rules[1].step(1)
    assert team.models[1].value == 0.75


@PARAMETER_RULES
def test_when_nobody_is_finite_the_old_consensus_stands_and_everybody_returns_to_it(rule: Any) -> None:
    team = Team(rule, [Scalar(NAN), Scalar(NAN), Scalar(7.0)], common=2.0)
    team.snapshot()
    outcomes = team.average([1, 1, 0])
    assert not any(outcome.moved for outcome in outcomes)
    assert team.adopt(outcomes) == [2.0, 2.0, 7.0]
    assert [float(rule.consensus.parameters[0]) for rule in team.rules] == [2.0] * 3


@PARAMETER_RULES
def test_an_idle_ranks_payload_is_not_even_read(rule: Any) -> None:
    team = Team(rule, [Scalar(2.0), Scalar(NAN)])
    team.snapshot()
    outcomes = team.average([1, 0])
    assert outcomes[1].nonfinite == ""
    assert team.adopt(outcomes) == [2.0, 2.0]


def test_a_gradient_that_is_not_finite_is_left_out_and_all_take_the_same_step() -> None:
    team = Team(GradientRule, [Scalar(1.0), Scalar(1.0)])
    for model, rule, gradient in zip(team.models, team.rules, [0.5, NAN], strict=True):
        model.weight.grad = torch.tensor([gradient])
        rule.step(8)
    team.snapshot()
    outcomes = team.average([8, 8])
    assert [outcome.nonfinite for outcome in outcomes] == ["", "weight"]
    assert team.adopt(outcomes) == [0.5, 0.5]


def test_a_parameter_without_a_gradient_anywhere_is_not_stepped() -> None:
    """Weight decay and momentum would move it."""
    models = [nn.ModuleDict({"used": Scalar(1.0), "unused": Scalar(4.0)}) for _ in range(2)]
    team = Team(GradientRule, models)
    for model, optimizer, rule in zip(team.models, team.optimizers, team.rules, strict=True):
        optimizer.param_groups[0]["weight_decay"] = 0.5
        if model is team.models[0]:  # on one rank only: it still counts
            model["used"].weight.grad = torch.tensor([0.0])
        rule.step(1)
    team.snapshot()
    for rule, outcome in zip(team.rules, team.average([1, 1]), strict=True):
        rule.adopt(outcome)
    assert [(model["used"].value, model["unused"].value) for model in team.models] == [(0.5, 4.0)] * 2


def test_pooled_variances_hold_the_spread_of_the_means() -> None:
    team = Team(ParameterRule, [Normed(-2.0, 1.0), Normed(2.0, 1.0), Normed(50.0, 50.0)])
    team.round_of([3, 1, 0])
    assert statistics(team) == [(0.0, 5.0)] * 3
    assert [int(model.norm.num_batches_tracked) for model in team.models] == [-2, 2, 50]


def test_pooling_keeps_small_variances_beside_large_means() -> None:
    """mean(m^2) - mean(m)^2 in float32 would leave nothing of a variance of 1e-3 at a mean of 1000."""
    models = [Normed(1000.0, 1e-3), Normed(1000.0, 1e-3)]
    team = Team(ParameterRule, models)
    for rule in team.rules:
        rule.start()
    with torch.no_grad():
        models[1].norm.running_mean.add_(0.0625)  # type: ignore[union-attr]
    team.round_of([1, 1])
    expected = pytest.approx(1e-3 + 0.03125**2, rel=1e-5)
    assert statistics(team) == [(1000.03125, expected)] * 2


@pytest.mark.parametrize(("how", "expected"), [("mean", [(0.0, 1.0)] * 2), ("local", [(-2.0, 1.0), (2.0, 1.0)])])
def test_other_ways_to_treat_statistics(how: str, expected: list[tuple[float, float]]) -> None:
    team = Team(lambda m, o: ParameterRule(m, o, bn_buffers=how), [Normed(-2.0, 1.0), Normed(2.0, 1.0)])
    team.round_of([1, 1])
    assert statistics(team) == expected


@pytest.mark.parametrize("rule", [ParameterRule, ElasticRule, GradientRule], ids=["cadence", "async", "gradients"])
def test_an_abandoned_round_leaves_parameters_buffers_and_replicated_state_as_they_were(rule: Any) -> None:
    board = Board(5.0)
    model = Scalar(4.0)
    made = rule(model, torch.optim.SGD(model.parameters(), lr=1.0))
    averagers = [InProcessAverager(board, rank) for rank in range(2)]
    other = threading.Thread(target=averagers[1].form, args=(1, (0, 1)))
    other.start()
    averagers[0].form(1, (0, 1))
    other.join()
    made.regroup(2, 0)
    made.start()
    model.weight.grad = torch.tensor([1.0])
    made.step(1)
    made.snapshot()
    held = model.value
    failed: list[BaseException] = []

    def hang() -> None:
        try:
            made.average(averagers[0], RoundOrder(1, 1, 1.0))
        except AbandonedError as error:
            failed.append(error)

    hanging = threading.Thread(target=hang)
    hanging.start()
    time.sleep(0.05)
    averagers[0].form(2, (0,))  # alone: the round is repeated from the untouched copy
    made.regroup(1, 0)
    hanging.join()
    assert failed
    assert (model.value, float(model.level)) == (held, 4.0)
    made.adopt(made.average(averagers[0], RoundOrder(2, 1, 1.0)))
    assert (model.value, float(model.level)) == (3.0, 4.0)
    assert model.weight.requires_grad


def test_training_on_while_a_round_runs_does_not_tear_its_snapshot() -> None:
    size = 200_000
    models = [nn.Linear(size, 1, bias=False) for _ in range(2)]
    for rank, model in enumerate(models):
        nn.init.constant_(model.weight, float(rank))
    team = Team(ElasticRule, models)
    team.snapshot()
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            for model in models:
                with torch.no_grad():
                    model.weight.add_(1.0)

    training = threading.Thread(target=train)
    training.start()
    try:
        for _ in range(10):
            team.average([1, 1])
            for rule in team.rules:
                assert torch.equal(rule.contribution.flat.parameters[0], torch.full((size,), 0.5))
    finally:
        stop.set()
        training.join()


def test_the_consensus_is_shown_to_callbacks_and_the_replica_is_put_back() -> None:
    team = Team(ElasticRule, [Scalar(1.0), Scalar(3.0)])
    team.round_of([1, 1])
    team.models[0].weight.grad = torch.tensor([-5.0])
    team.rules[0].step(1)
    team.models[0].level.fill_(9.0)
    with team.rules[0].consensus_in():
        assert (team.models[0].value, float(team.models[0].level)) == (2.0, 2.0)
    assert (team.models[0].value, float(team.models[0].level)) == (7.0, 9.0)
