"""What every rule of averaging does for the loop: step, snapshot, average beside or before training, adopt.

`average` runs on the averaging thread and touches only the snapshot and the contribution; what the run stands on
(model, consensus, center, optimizer) changes in `adopt` alone, on the training thread at a step's edge. So a round
that is abandoned leaves nothing behind and can be repeated by the survivors from the same snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from flodl.engine.averaging.contribution import Contribution, Sums
from flodl.engine.averaging.flat import Flat
from flodl.ports import Averager

__all__ = ["Outcome", "RoundOrder", "Rule", "Standing", "clip", "forget_nonfinite", "parameters_of", "summed"]


@dataclass(frozen=True)
class RoundOrder:
    """One round as this rank takes part in it.

    mass: its own, before its values were looked at. consensus: adopt it whole. arrival_ms: since the last round ended
    here; all members send theirs along, so each knows how long it waited for slower ones. samples: of all ranks in it.
    """

    generation: int
    round: int
    mass: float
    consensus: bool = False
    arrival_ms: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Outcome:
    """What came of a round on this rank.

    moved: whether anybody contributed (else nothing changes anywhere). divergence: ||pre - post|| / ||post||.
    nonfinite: name of this rank's first tensor that was not finite. waited_ms: for slower members. duration_ms: whole,
    with that wait. ended: when the sum was there, time.perf_counter.
    """

    order: RoundOrder
    moved: bool
    divergence: float
    nonfinite: str
    waited_ms: float
    duration_ms: float
    ended: float


@dataclass(frozen=True)
class Standing:
    """What every rank holds alike since the last accepted round; changed in `adopt` alone.

    consensus: None where the model itself is it. outer: by name, what else there is, as parameters (an elastic center,
    an outer optimizer's velocity). counts: by the same names, one element that belongs to it, where there is one.
    """

    consensus: Flat | None = None
    outer: Mapping[str, Flat] = field(default_factory=dict)
    counts: Mapping[str, torch.Tensor] = field(default_factory=dict)


class Rule(Protocol):
    """One way to combine replicas."""

    def start(self) -> None:
        """The model now holds what everybody holds: it is the consensus from here on."""
        ...

    def regroup(self, members: int, place: int) -> None:
        """A new generation: new work buffers, for an abandoned operation may still write to the old ones."""
        ...

    def step(self, samples: int) -> None:
        """Gradients of a batch of `samples` are there (backward has run)."""
        ...

    def snapshot(self) -> None:
        """The planned point: what is contributed is fixed now."""
        ...

    def average(self, averager: Averager, order: RoundOrder) -> Outcome:
        """Combine the snapshot with the others'. On the averaging thread; raises AbandonedError."""
        ...

    def adopt(self, outcome: Outcome) -> None:
        """Take over the result. On the training thread."""
        ...

    def result(self) -> list[torch.Tensor]:
        """Copies of what the last adopted round gave: enough for a rank that lacks it to adopt it too."""
        ...

    def repaired(self, result: Sequence[torch.Tensor], order: RoundOrder) -> Outcome:
        """Another rank's `result` of a round that this one took part in but does not hold, ready to be adopted."""
        ...

    def standing(self) -> Standing:
        """The replicated state itself, not a copy. On the training thread."""
        ...

    def discard(self) -> None:
        """Forget what was contributed to by this rank and not averaged (its work is void)."""
        ...

    def consensus_in(self) -> AbstractContextManager[None]:
        """While inside, the model holds the consensus of the last round; afterwards what it held before."""
        ...


def summed(averager: Averager, order: RoundOrder, contribution: Contribution, reference: Flat) -> tuple[Sums, float]:
    """Sum the filled contribution over the group and settle it. Returns the totals and the moment the sum was there."""
    averager.combine(order.generation, order.round, contribution.flat.vectors)
    ended = time.perf_counter()
    contribution.settle(reference)
    return contribution.read(), ended


def clip(optimizer: Optimizer, max_norm: float | None) -> None:
    """Scale the gradients of all the optimizer's parameters to a norm of at most `max_norm`; None: leave them."""
    if max_norm is not None:
        nn.utils.clip_grad_norm_(list(parameters_of(optimizer)), max_norm)


def forget_nonfinite(optimizer: Optimizer) -> None:
    """Drop the optimizer's state of parameters for which it is not finite: it would ruin the adopted weights again."""
    for parameter in parameters_of(optimizer):
        state = optimizer.state.get(parameter, {})
        tensors = [value for value in state.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]
        if any(not bool(torch.isfinite(value).all()) for value in tensors):
            optimizer.state.pop(parameter)


def parameters_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """All that it trains, group by group."""
    for group in optimizer.param_groups:
        yield from group["params"]
