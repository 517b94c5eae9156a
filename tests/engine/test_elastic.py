"""cpu_async's rule: the numbers of elastic averaging, the correction, and what training meanwhile must not lose."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.decide.shares import mass
from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.parameters import ParameterRule
from tests.engine.scalars import Scalar, Team


def elastic(**options: Any) -> Any:
    return lambda model, optimizer: ElasticRule(model, optimizer, **options)


def center(team: Team, rank: int = 0) -> float:
    return float(team.rules[rank].center.parameters[0])


def learn(team: Team, rank: int, amount: float) -> None:
    """A step of this rank that adds `amount` to its weight."""
    team.models[rank].weight.grad = torch.tensor([-amount])
    team.rules[rank].step(1)


def test_stored_center_pulls_both_ways() -> None:
    team = Team(elastic(alpha=0.5, beta=0.5), [Scalar(1.0), Scalar(3.0)], common=0.0)
    assert team.round_of([1, 1]) == [0.5, 1.5]
    assert center(team) == center(team, 1) == 1.0
    assert team.round_of([1, 1]) == [0.75, 1.25]
    assert center(team) == 1.0
    assert team.round_of([1, 1]) == [0.875, 1.125]
    assert center(team) == 1.0


def test_alpha_one_puts_the_locals_on_the_old_center() -> None:
    team = Team(elastic(alpha=1.0, beta=1.0), [Scalar(1.0), Scalar(3.0)], common=0.5)
    assert team.round_of([1, 1]) == [0.5, 0.5]
    assert center(team) == 2.0


def test_the_center_takes_the_plain_mean_of_those_that_moved_and_an_idle_rank_adopts_the_target() -> None:
    team = Team(elastic(alpha=0.5, beta=0.25), [Scalar(1.0), Scalar(3.0), Scalar(100.0)], common=0.0)
    assert team.round_of([30, 10, 0]) == [0.5, 1.5, 0.0]
    assert center(team, 2) == 0.5


def test_blending_towards_the_consensus() -> None:
    team = Team(elastic(alpha=0.5, center="consensus"), [Scalar(1.0), Scalar(3.0)], common=0.0)
    assert team.round_of([3, 1]) == [1.25, 2.25]
    assert team.rules[0].consensus.parameters[0].item() == 1.5
    assert team.round_of([3, 1]) == [1.375, 1.875]


def test_a_consensus_round_is_exact_everywhere_and_moves_the_center_there() -> None:
    team = Team(elastic(alpha=0.5, beta=0.5), [Scalar(1.0), Scalar(3.0)], common=0.0)
    assert team.round_of([3, 1], consensus=True) == [1.5, 1.5]
    assert center(team) == 1.5


def test_nothing_learnt_while_the_round_ran_is_lost() -> None:
    team = Team(elastic(), [Scalar(1.0), Scalar(3.0)], common=0.0)
    team.snapshot()
    outcomes = team.average([1, 1])
    learn(team, 0, 0.25)
    assert team.adopt(outcomes) == [2.25, 2.0]
    assert [float(rule.consensus.parameters[0]) for rule in team.rules] == [2.0, 2.0]


def test_elastic_blending_adds_to_what_was_learnt_meanwhile() -> None:
    team = Team(elastic(alpha=0.5, beta=0.5), [Scalar(1.0), Scalar(3.0)], common=0.0)
    team.snapshot()
    outcomes = team.average([1, 1])
    learn(team, 0, 0.25)
    learn(team, 1, -1.0)
    assert team.adopt(outcomes) == [0.75, 0.5]


def test_an_idle_rank_that_went_on_keeps_what_it_learnt() -> None:
    team = Team(elastic(alpha=0.5, center="consensus"), [Scalar(1.0), Scalar(9.0)], common=0.0)
    team.snapshot()
    outcomes = team.average([1, 0])
    learn(team, 1, 0.5)
    assert team.adopt(outcomes) == [1.0, 1.5]


def test_buffers_are_overwritten_not_blended() -> None:
    team = Team(elastic(alpha=0.5), [Scalar(1.0), Scalar(3.0)], common=0.0)
    team.round_of([1, 1])
    assert [float(model.level) for model in team.models] == [2.0, 2.0]


@pytest.mark.parametrize(("gamma", "expected"), [(1.0, 1.5), (0.5, 1.732051), (0.0, 2.0), (-1.0, 2.5)])
@pytest.mark.parametrize("rule", [ParameterRule, ElasticRule], ids=["cadence", "async"])
def test_weights_follow_the_steps_and_an_idle_rank_has_no_vote(rule: Any, gamma: float, expected: float) -> None:
    team = Team(rule, [Scalar(1.0), Scalar(3.0), Scalar(100.0)])
    masses = [mass(steps, gamma) for steps in (30, 10, 0)]
    assert team.round_of(masses) == pytest.approx([expected] * 3, abs=1e-6)
    assert [float(model.level) for model in team.models] == [2.0] * 3


@pytest.mark.parametrize("rule", [ParameterRule, ElasticRule], ids=["cadence", "async"])
def test_a_round_in_which_nobody_moved_changes_nothing(rule: Any) -> None:
    team = Team(rule, [Scalar(1.0), Scalar(3.0)])
    assert team.round_of([0, 0]) == [1.0, 3.0]
    assert [float(model.level) for model in team.models] == [1.0, 3.0]


def test_divergence_compares_this_ranks_weights_with_the_mean() -> None:
    models = [torch.nn.Linear(2, 1, bias=False) for _ in range(2)]
    with torch.no_grad():
        models[0].weight.copy_(torch.tensor([[3.0, 4.0]]))
        models[1].weight.copy_(torch.tensor([[3.0, 2.0]]))
    team = Team(ParameterRule, models)
    team.snapshot()
    assert [o.divergence for o in team.average([1, 1])] == pytest.approx([0.235702] * 2, abs=1e-6)


def test_a_small_pull_on_bfloat16_weights_is_kept_in_float32() -> None:
    """256 + 1 is 256 in bfloat16: sums, means and the center must not be."""
    team = Team(
        elastic(alpha=0.001, beta=0.001), [Scalar(256.0, torch.bfloat16), Scalar(2.0, torch.bfloat16)], common=0.0
    )
    for _ in range(100):
        team.round_of([1, 1])
    assert center(team) == pytest.approx(12.27, abs=0.4)
    plain = Team(ParameterRule, [Scalar(256.0, torch.bfloat16), Scalar(2.0, torch.bfloat16)])
    assert plain.round_of([1, 1]) == [129.0, 129.0]
