"""What rides on the consensus (an outer optimizer's velocity, the moving average) goes with a bundle and goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from flodl.engine.averaging.ema import Ema
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.bundle import TrainingState
from flodl.engine.rounds import Rounds
from flodl.spec.outer import DiLoCoConfig
from tests.engine.scalars import Scalar


class Alone:
    """One rank's training state; rounds end where they are told to."""

    def __init__(self, *, outer: bool = True, ema: bool = True, dtype: torch.dtype = torch.float32) -> None:
        self.model = Scalar(7.0, dtype)
        self.model.register_buffer("steps", torch.tensor(3))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        rule = ParameterRule(self.model, optimizer)
        if outer:
            rule.move_consensus(DiLoCoConfig(lr=0.5, mu=0.5))
        self.averager = InProcessAverager(Board(), 0)
        self.averager.form(1, (0,))
        self.rounds = Rounds(0, self.model, rule, self.averager)
        self.state = TrainingState(self.model, optimizer, rule)
        self.rounds.ema = self.state.ema = Ema(self.model, 10) if ema else None
        rule.start()

    @property
    def consensus(self) -> torch.Tensor:
        found = self.rounds.rule.standing().consensus
        assert found is not None
        return found.parameters[0].clone()

    def reach(self, *means: float) -> tuple[float, ...]:
        """Rounds with these means; weight, and its moving average."""
        for mean in means:
            with torch.no_grad():
                self.model.weight.fill_(mean)
            self.rounds.rule.snapshot()
            self.rounds.adopt(self.rounds.rule.average(self.averager, RoundOrder(1, 1, 1.0, samples=10)))
        ema = self.rounds.ema
        return self.model.value, *([] if ema is None else [float(ema.flat.parameters[0])])


def stored(state: TrainingState) -> tuple[dict[Any, bytes], dict[str, Any]]:
    snapshot = state.capture().freeze()
    return {kind: b"".join(snapshot.chunks(kind)) for kind in snapshot.kinds}, json.loads(json.dumps(snapshot.plain))


def test_they_go_on_as_if_the_run_had_not_stopped() -> None:
    whole, first, second = Alone(), Alone(), Alone()
    expected = whole.reach(2.0, 3.0, 4.0)
    assert expected == pytest.approx((3.8125, (0.25 * 2.0 + 0.5 * 2.75 + 3.8125) / 1.75))
    first.reach(2.0, 3.0)
    second.reach(50.0, 60.0)  # whatever it holds must go
    assert second.state.apply(*stored(first.state)) == ()
    assert second.reach(4.0) == expected


def test_a_narrow_model_goes_on_from_the_consensus_that_it_cannot_hold() -> None:
    whole, first, second = (Alone(ema=False, dtype=torch.bfloat16) for _ in range(3))
    for one in (whole, first):
        one.reach(2.0, 3.015625)
    (held,) = first.consensus
    assert held.to(torch.bfloat16) != held, "this one is rounded in the model"
    second.reach(50.0, 60.0)
    assert second.state.apply(*stored(first.state)) == ()
    for one in (whole, second):
        one.reach(4.0)
    assert torch.equal(whole.consensus, second.consensus)


def test_pooled_statistics_of_a_narrow_model_are_reckoned_from_the_same_buffers_everywhere() -> None:
    torch.manual_seed(0)
    states: list[TrainingState] = []
    rules: list[ParameterRule] = []
    for _ in range(2):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        rules.append(ParameterRule(model, optimizer))
        rules[-1].start()
        states.append(TrainingState(model, optimizer, rules[-1]))
    for part in rules[0].consensus.buffers:
        part.copy_(torch.rand_like(part))
    states[1].apply(*stored(states[0]))
    assert torch.equal(rules[1].consensus.buffers[0], rules[0].consensus.buffers[0])


def test_what_only_one_side_keeps_is_told() -> None:
    both, neither = Alone(), Alone(outer=False, ema=False)
    both.reach(2.0, 3.0)
    assert neither.state.apply(*stored(both.state)) == (
        "the bundle's ema is left out: this run keeps none",
        "the bundle's velocity is left out: this run keeps none",
    )
    assert neither.reach(4.0) == (4.0,)
    assert both.state.apply(*stored(neither.state)) == (
        "the bundle has no ema: it begins with the next round",
        "the bundle has no velocity: it begins at rest",
    )
    assert both.reach(6.0) == (6.0, 6.0)  # the first round of an outer optimizer takes no step
