"""A survivor that lacks a round that another one holds ends where the round itself would have brought it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flodl.decide.messages import FormGroup
from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.rounds import Rounds
from flodl.spec.outer import DiLoCoConfig
from tests.engine.scalars import Scalar

pytestmark = pytest.mark.own_process

RULES: dict[str, Any] = {
    "cadence": ParameterRule,
    "correction": ElasticRule,
    "elastic": lambda model, optimizer: ElasticRule(model, optimizer, alpha=0.5, beta=0.5),
    "gradients": GradientRule,
}


def group(generation: int, *, source: int | None, accept_round: int = 0) -> FormGroup:
    return FormGroup(
        to=(0, 1), generation=generation, ranks=(0, 1), source=source, accept_round=accept_round, reason="test"
    )


def formed(everybody: list[Rounds], order: FormGroup) -> None:
    joining = [rounds.form(order) for rounds in everybody]
    for rounds, future in zip(everybody, joining, strict=True):
        rounds.settle(order, future.result(10.0))


def learn(model: Scalar, rule: Any, amount: float) -> None:
    model.weight.grad = torch.tensor([-amount])
    rule.step(1)


def world(make: Any) -> tuple[list[Scalar], list[Rounds]]:
    board = Board(10.0)
    models = [Scalar(1.0), Scalar(1.0)]
    everybody = []
    for rank, model in enumerate(models):
        rule = make(model, torch.optim.SGD(model.parameters(), lr=1.0))
        everybody.append(Rounds(rank, model, rule, InProcessAverager(board, rank)))
    formed(everybody, group(1, source=0))
    return models, everybody


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("lacks", [False, True], ids=["both hold it", "one lacks it"])
def test_the_missed_round_is_adopted_as_in_the_round_itself(name: str, lacks: bool) -> None:
    models, everybody = world(RULES[name])
    for model, rounds, amount in zip(models, everybody, [1.0, 3.0], strict=True):
        learn(model, rounds.rule, amount)
        rounds.rule.snapshot()
    outcomes = [future.result(10.0) for future in [r.submit(RoundOrder(1, 1, 1.0)) for r in everybody]]
    if name in ("correction", "elastic"):
        for model, rounds in zip(models, everybody, strict=True):
            learn(model, rounds.rule, 0.25)  # trained on while the round ran
    everybody[0].adopt(outcomes[0])
    if not lacks:
        everybody[1].adopt(outcomes[1])
    order = group(2, source=0, accept_round=1)
    formed(everybody, order)
    assert [rounds.last_round for rounds in everybody] == [1, 1]
    expected = {
        "cadence": [3.0, 3.0],
        "correction": [3.25, 3.25],
        "elastic": [1.75, 2.75],
        "gradients": [3.0, 3.0],
    }
    assert [model.value for model in models] == expected[name]


@pytest.mark.parametrize("rule", [ParameterRule, ElasticRule], ids=["cadence", "async"])
def test_a_missed_round_brings_the_outer_optimizers_state_and_the_moving_average(rule: Any) -> None:
    """Means 2, 3, 4 under diloco(lr 0.5, mu 0.5), by hand: 2; v = -1, 2.75; v = -0.5 - 1.25, 3.8125."""

    def make(model: Any, optimizer: Any) -> Any:
        made = rule(model, optimizer)
        made.move_consensus(DiLoCoConfig(lr=0.5, mu=0.5))
        return made

    models, everybody = world(make)
    for rounds, model in zip(everybody, models, strict=True):
        rounds.ema = Ema(model, 10)
    for number, (mean, lacks) in enumerate([(2.0, False), (3.0, True), (4.0, False)], start=1):
        for model, rounds, apart in zip(models, everybody, [-0.5, 0.5], strict=True):
            with torch.no_grad():
                model.weight.fill_(mean + apart)
            rounds.rule.snapshot()
        order = RoundOrder(everybody[0].generation, number, 1.0, samples=10)
        outcomes = [future.result(10.0) for future in [r.submit(order) for r in everybody]]
        for rounds, outcome in list(zip(everybody, outcomes, strict=True))[: 1 if lacks else 2]:
            rounds.adopt(outcome)
        if lacks:
            formed(everybody, group(2, source=0, accept_round=number))
    assert [model.value for model in models] == [3.8125] * 2
    averages = [float(rounds.ema.flat.parameters[0]) for rounds in everybody if rounds.ema is not None]
    assert averages == pytest.approx([(0.25 * 2.0 + 0.5 * 2.75 + 3.8125) / 1.75] * 2)
