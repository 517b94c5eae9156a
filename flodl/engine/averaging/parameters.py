"""Averaging parameters: every rank takes its own optimizer steps, the round makes the weighted mean of the replicas."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.engine.averaging.contribution import Contribution
from flodl.engine.averaging.flat import Flat, first_nonfinite
from flodl.engine.averaging.layout import model_layout
from flodl.engine.averaging.outer import Outer
from flodl.engine.averaging.rule import Outcome, RoundOrder, Standing, clip, forget_nonfinite, summed
from flodl.engine.averaging.transfer import Transfer
from flodl.ports import Averager
from flodl.spec.outer import AverageConfig, OuterConfig

__all__ = ["ParameterRule", "squared"]

TINY_NORM = 1e-10


class ParameterRule:
    """Weighted mean of parameters; float buffers with equal weight among ranks that moved; idle ranks adopt it.

    flat_device: where vectors are summed: the CPU for gloo, the model's own for NCCL. bn_buffers: pooled, mean, local.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None = None,
        bn_buffers: str = "pooled",
        device: torch.device | None = None,
        flat_device: torch.device | None = None,
    ) -> None:
        self.layout = model_layout(model, with_buffers=bn_buffers != "local")
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        self.pooled = bn_buffers == "pooled"
        self.flat_device = flat_device or torch.device("cpu")
        self.transfer = Transfer(self.layout, device or torch.device("cpu"), self.flat_device)
        self.local = self._flat()
        self.consensus = self._flat()
        self.outer: Outer | None = None
        self.contribution = self._contribution(1, 0)
        self.trained = False  # whether steps were taken since the snapshot

    def move_consensus(self, outer: OuterConfig) -> None:
        """Have this be done to every round's mean before it is adopted. Before the first round."""
        self.outer = None if isinstance(outer, AverageConfig) else Outer(outer, self._flat())
        self.contribution.velocity = None if self.outer is None else self._flat()

    def start(self) -> None:
        """The model is the consensus from here on."""
        self.transfer.take(self.consensus)
        self.transfer.wait()
        if self.outer is not None:
            self.outer.start()

    def regroup(self, members: int, place: int) -> None:
        """New work buffers for a new generation: an abandoned round may still write to the old ones."""
        self.contribution = self._contribution(members, place)

    def step(self, samples: int) -> None:
        """One local optimizer step."""
        clip(self.optimizer, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.trained = True

    def snapshot(self) -> None:
        """Fix what this rank contributes: a copy, never a view of the model."""
        self.transfer.take(self.local)
        self.trained = False

    def average(self, averager: Averager, order: RoundOrder) -> Outcome:
        """Sum of mass x parameters over sum of masses; the result stays in the contribution until it is adopted."""
        began = time.perf_counter()
        contribution = self.contribution  # a new generation brings a new one
        self.transfer.wait()
        nonfinite = first_nonfinite(self.local) if order.mass > 0 else ""
        mass = 0.0 if nonfinite else self.mass(order)
        contribution.fill(self.local, mass, self.consensus, order.arrival_ms)
        sums, ended = summed(averager, order, contribution, self.consensus)
        moved = sums.moved > 0
        apart = 0.0
        if moved and mass > 0:
            norm = squared(contribution.flat.parameters)
            apart = (self.distance(contribution) / norm) ** 0.5 if norm > TINY_NORM**2 else 0.0
        if moved and self.outer is not None:
            self.outer.propose(contribution, self.consensus)
        return Outcome(order, moved, apart, nonfinite, sums.waited_ms, (ended - began) * 1000, ended)

    def distance(self, contribution: Contribution) -> float:
        """||pre - post||^2 over parameters: pre is this rank's snapshot, post the settled mean."""
        if contribution.is_alone:
            return 0.0
        pairs = zip(self.local.parameters, contribution.flat.parameters, strict=True)
        return squared(here - there for here, there in pairs)

    def mass(self, order: RoundOrder) -> float:
        """The mass that this rank's values get in a round."""
        return order.mass

    def adopt(self, outcome: Outcome) -> None:
        """The mean becomes the consensus, and the replica with it.

        Where nobody contributed nothing changes, but for a replica that is not finite: it takes the old consensus.
        """
        if outcome.moved:
            self.advance()
        if outcome.moved or outcome.nonfinite:
            self.transfer.put(self.consensus)
        if outcome.nonfinite:
            forget_nonfinite(self.optimizer)

    def advance(self) -> None:
        """What stands in the contribution is the consensus now."""
        self.consensus.copy_(self.contribution.flat)
        if self.outer is not None:
            self.outer.commit(self.contribution)
            if self.outer.resets_inner:
                self.optimizer.state.clear()

    def result(self) -> list[Tensor]:
        """The consensus; behind it the outer optimizer's velocity, where there is one."""
        velocity = [] if self.outer is None else self.outer.velocity.parameters
        return [vector.clone() for vector in (*self.consensus.vectors, *velocity)]

    def repaired(self, result: Sequence[Tensor], order: RoundOrder) -> Outcome:
        """The consensus that another rank holds becomes this one's outcome of the round."""
        self.contribution.load(result)
        if self.outer is not None:
            self.outer.load(self.contribution, result[len(self.consensus.vectors) :])
        self.transfer.wait()
        nonfinite = first_nonfinite(self.local) if order.mass > 0 else ""
        return Outcome(order, True, 0.0, nonfinite, 0.0, 0.0, 0.0)

    def standing(self) -> Standing:
        """The consensus and the outer optimizer's state; the replica may have gone on."""
        if self.outer is None:
            return Standing(self.consensus)
        return Standing(self.consensus, {"velocity": self.outer.velocity}, {"velocity": self.outer.rounds})

    def discard(self) -> None:
        """Nothing is held back between rounds but the weights themselves."""
        self.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def consensus_in(self) -> Iterator[None]:
        """The model holds the consensus inside, its own weights again outside."""
        held = self._flat()
        self.transfer.take(held)
        self.transfer.wait()
        self.transfer.put(self.consensus)
        try:
            yield
        finally:
            self.transfer.put(held)

    @property
    def _flat_place(self) -> torch.device | None:
        return None if self.flat_device.type == "cpu" else self.flat_device

    def _flat(self) -> Flat:
        return Flat(self.layout, device=self._flat_place)

    def _contribution(self, members: int, place: int) -> Contribution:
        made = Contribution(self.layout, members, place, pooled=self.pooled, device=self._flat_place)
        made.velocity = None if self.outer is None else self._flat()
        return made


def squared(parts: Iterable[Tensor]) -> float:
    """||parts||^2 (torch.dist would be four times as slow and drifts in float32)."""
    return sum(float(torch.linalg.vector_norm(part)) ** 2 for part in parts)
