"""Outer optimizers on the consensus: the numbers worked out by hand, in every way a round can come to an end."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.parameters import ParameterRule
from flodl.spec.outer import AverageConfig, DiLoCoConfig, OuterConfig, SlowMoConfig
from tests.engine.scalars import Scalar, Team

RULES = pytest.mark.parametrize("rule", [ParameterRule, ElasticRule], ids=["cadence", "async"])
DILOCO = DiLoCoConfig(lr=0.7, mu=0.9)
MEANS = [1.0, 0.9, 0.75, 0.70]


def team(rule: Any, outer: OuterConfig, ranks: int = 2) -> Team:
    def make(model: Any, optimizer: Any) -> Any:
        made = rule(model, optimizer)
        made.move_consensus(outer)
        return made

    return Team(make, [Scalar(5.0, torch.float64) for _ in range(ranks)], common=5.0)


def reach(of: Team, mean: float, apart: float = 0.125) -> list[float]:
    """A round in which the replicas have come to lie `apart` on both sides of `mean`."""
    for rank, value in enumerate((mean - apart, mean + apart)):
        of.set(rank, value)
    return of.round_of([1.0, 1.0])


@RULES
@pytest.mark.parametrize(
    ("outer", "means", "expected"),
    [
        (AverageConfig(), MEANS, MEANS),
        (DILOCO, MEANS, [1.0, 0.867, 0.65469, 0.5975833]),
        (SlowMoConfig(lr=1.0, mu=0.9), MEANS, [1.0, 0.9, 0.66, 0.484]),
        (SlowMoConfig(lr=0.5, mu=0.9), [1.0, 0.5, 0.7], [1.0, 0.75, 0.5]),
    ],
)
def test_the_consensus_takes_the_step_worked_out_by_hand(
    rule: Any, outer: OuterConfig, means: list[float], expected: list[float]
) -> None:
    made = team(rule, outer)
    for mean, wanted in zip(means, expected, strict=True):
        assert reach(made, mean) == pytest.approx([wanted] * 2, abs=1e-7)
        held = [float(rule.standing().consensus.parameters[0]) for rule in made.rules]
        assert held == pytest.approx([wanted] * 2, abs=1e-7)
        assert [float(model.level) for model in made.models] == pytest.approx([mean] * 2)  # buffers are the mean's


def test_divergence_is_measured_before_the_outer_step() -> None:
    made = team(ParameterRule, DILOCO)
    reach(made, 1.0)
    for rank, value in enumerate((0.8, 1.0)):
        made.set(rank, value)
    made.snapshot()
    assert [o.divergence for o in made.average([1, 1])] == pytest.approx([0.1 / 0.9] * 2)


def test_what_is_learnt_while_the_round_runs_is_added_to_the_new_consensus() -> None:
    made = team(ElasticRule, DILOCO)
    reach(made, 1.0)
    for rank, value in enumerate((0.8, 1.0)):
        made.set(rank, value)
    made.snapshot()
    outcomes = made.average([1, 1])
    made.models[0].weight.grad = torch.tensor([-0.25], dtype=torch.float64)
    made.rules[0].step(1)
    assert made.adopt(outcomes) == pytest.approx([0.867 + 0.25, 0.867])


@RULES
def test_a_round_in_which_nobody_moved_is_no_step(rule: Any) -> None:
    made = team(rule, DILOCO)
    reach(made, 1.0)
    reach(made, 0.9)
    assert made.round_of([0.0, 0.0]) == pytest.approx([0.867] * 2)
    assert reach(made, 0.75) == pytest.approx([0.65469] * 2)


@RULES
def test_a_round_that_is_averaged_again_takes_its_step_once(rule: Any) -> None:
    made = team(rule, DILOCO)
    reach(made, 1.0)
    for rank, value in enumerate((0.8, 1.0)):
        made.set(rank, value)
    made.snapshot()
    made.average([1, 1])  # nobody adopts it
    assert made.adopt(made.average([1, 1])) == pytest.approx([0.867] * 2)


@pytest.mark.parametrize(("resets", "left"), [(False, 1), (True, 0)])
def test_the_inner_optimizers_state_is_kept_unless_it_shall_go(resets: bool, left: int) -> None:
    made = team(ParameterRule, DiLoCoConfig(reset_inner=resets))
    for model, optimizer, rule in zip(made.models, made.optimizers, made.rules, strict=True):
        optimizer.param_groups[0]["momentum"] = 0.9
        model.weight.grad = torch.tensor([0.5], dtype=torch.float64)
        rule.step(1)
    made.round_of([1, 1])
    assert [len(optimizer.state) for optimizer in made.optimizers] == [left] * 2
