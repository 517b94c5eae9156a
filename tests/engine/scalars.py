"""Ranks of one scalar weight in one process, on the in-process averager: for numbers that can be checked by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.rule import Outcome, RoundOrder

__all__ = ["Scalar", "Team"]


class Scalar(nn.Module):
    """One weight, and a float buffer beside it."""

    level: torch.Tensor

    def __init__(self, value: float, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([value], dtype=dtype))
        self.register_buffer("level", torch.tensor([value], dtype=dtype))

    @property
    def value(self) -> float:
        return float(self.weight.detach())


class Team:
    """One model and rule per rank, joined at a board. `common`: what all start from (None: each its own value)."""

    def __init__(
        self, make_rule: Callable[[Any, Any], Any], models: Sequence[Any], *, common: float | None = None
    ) -> None:
        board = Board(10.0)
        self.models = list(models)
        self.optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
        self.rules = [make_rule(m, o) for m, o in zip(models, self.optimizers, strict=True)]
        self.averagers = [InProcessAverager(board, rank) for rank in range(len(models))]
        self.round = 0
        held = [model.value for model in models if common is not None]
        self.together(lambda rank: self.averagers[rank].form(1, range(len(models))))
        for rank, rule in enumerate(self.rules):
            rule.regroup(len(models), rank)
            if common is not None:
                self.set(rank, common)
                rule.start()
                self.set(rank, held[rank])

    @torch.no_grad()
    def set(self, rank: int, value: float) -> None:
        for tensor in (*self.models[rank].parameters(), *self.models[rank].buffers()):
            tensor.fill_(value)

    def snapshot(self) -> None:
        for rule in self.rules:
            rule.snapshot()

    def average(self, masses: Sequence[float], *, consensus: bool = False) -> list[Outcome]:
        """The round on every rank; nothing is adopted yet."""
        self.round += 1
        return self.together(
            lambda rank: self.rules[rank].average(
                self.averagers[rank], RoundOrder(1, self.round, masses[rank], consensus=consensus)
            )
        )

    def adopt(self, outcomes: Sequence[Outcome]) -> list[float]:
        """Every rank's value after it has adopted its outcome."""
        for rule, outcome in zip(self.rules, outcomes, strict=True):
            rule.adopt(outcome)
        return [model.value for model in self.models]

    def round_of(self, masses: Sequence[float], *, consensus: bool = False) -> list[float]:
        """Snapshot, average and adopt with nothing trained in between."""
        self.snapshot()
        return self.adopt(self.average(masses, consensus=consensus))

    def together(self, call: Callable[[int], Any]) -> list[Any]:
        """`call(rank)` on a thread per rank; results in order."""
        results: dict[int, Any] = {}
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                results[rank] = call(rank)
            except BaseException as error:  # noqa: BLE001  raised below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(self.models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(len(self.models))]
