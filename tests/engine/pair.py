"""Two ranks of a rule for gradients in one process: what is launched or averaged on the one is met by the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.averaging.under_way import UnderWay
from tests.engine import rig

__all__ = ["NAN", "Normed", "Pair", "at_once"]

NAN = float("nan")


def at_once(call: Callable[[int], Any]) -> list[Any]:
    """What both ranks' calls give."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, (0, 1)))


class Normed(nn.Module):
    """Two layers and a normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(inputs))))


class Pair:
    """Two ranks in one thread each turn: what is launched on the one is met by the other."""

    def __init__(
        self,
        make: Callable[[Any], torch.optim.Optimizer],
        *,
        clip: float | None = None,
        model: Callable[[], nn.Module] = Normed,
    ) -> None:
        self.board = Board(10.0)
        self.models = [model(), model()]
        self.optimizers = [make(model.parameters()) for model in self.models]
        self.rules = [
            GradientRule(model, optimizer, max_grad_norm=clip)
            for model, optimizer in zip(self.models, self.optimizers, strict=True)
        ]
        self.seats = [InProcessAverager(self.board, rank) for rank in (0, 1)]
        self.number = 0
        self.regroup(1)
        for rule in self.rules:
            rule.goes_ahead = True
            rule.start()

    def regroup(self, generation: int) -> None:
        self.generation = generation
        at_once(lambda rank: self.seats[rank].form(generation, (0, 1)))
        for rank, rule in enumerate(self.rules):
            rule.regroup(2, rank)

    def batch(self, number: int, poison: tuple[int, ...] = ()) -> None:
        for rank, (model, rule) in enumerate(zip(self.models, self.rules, strict=True)):
            generator = torch.Generator().manual_seed(10 * number + rank)
            inputs = torch.randn(5, 4, generator=generator)
            loss = model(inputs).square().mean() * (NAN if rank in poison else 1.0)
            loss.backward()
            rule.step(5)

    def order(self) -> RoundOrder:
        self.number += 1
        return RoundOrder(self.generation, self.number, 0.5)

    def launch(self) -> list[UnderWay]:
        order = self.order()
        for rule in self.rules:
            assert rule.can_go_ahead(order)
            rule.snapshot()
        return at_once(lambda rank: self.rules[rank].launch(self.seats[rank], order))

    def average(self) -> None:
        order = self.order()
        for rule in self.rules:
            rule.snapshot()
        outcomes = at_once(lambda rank: self.rules[rank].average(self.seats[rank], order))
        for rule, outcome in zip(self.rules, outcomes, strict=True):
            rule.adopt(outcome)

    def standing(self) -> list[dict[str, Any]]:
        """All that a rank holds, by name, as it is now."""
        return [
            rig.values(model) | {f"state {n} {key}": np.array(_plain(value)) for n, key, value in _states(optimizer)}
            for model, optimizer in zip(self.models, self.optimizers, strict=True)
        ]


def _states(optimizer: torch.optim.Optimizer) -> list[tuple[int, str, Any]]:
    held = [optimizer.state.get(p, {}) for group in optimizer.param_groups for p in group["params"]]
    return [(n, key, value) for n, state in enumerate(held) for key, value in state.items()]


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().double().numpy().copy()
    return NAN if value is None else float(value)
