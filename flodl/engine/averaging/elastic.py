"""Averaging beside training (cpu_async): adopt what the others know without losing what was learnt meanwhile.

One formula at a step's edge: ``local += a * (target - snapshot)``; where nothing was trained since the snapshot it is
written ``(1 - a) * local + a * target``, a plain copy at a = 1.

* alpha None: a = 1, target = the round's weighted mean, or what an outer optimizer made of it. A correction: steps
  taken meanwhile stay whole.
* alpha a, center "stored": target = the old center; center = (1 - b) * center + b * mean, unweighted over ranks that
  moved.
* alpha a, center "consensus": target = the round's weighted mean.

An idle rank adopts the target whole, and so does a rank that was not finite (then the mean: its own is ruined). A round
ordered with `consensus` (the last one, a nudge) is weighted, adopted whole by everybody, and the center moves there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.engine.averaging.contribution import Contribution
from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.parameters import ParameterRule, squared
from flodl.engine.averaging.rule import Outcome, RoundOrder, Standing, forget_nonfinite
from flodl.ports import Averager

__all__ = ["ElasticRule"]


class ElasticRule(ParameterRule):
    """Correction to the consensus, or elastic blending with a center.

    Held: snapshot (`local`), work (the contribution) with the difference to be added beside it, made ready on the
    averaging thread, and the consensus; with a stored center that one too. Buffers are overwritten, never blended.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        alpha: float | None = None,
        beta: float = 1.0,
        center: str = "stored",
        **options: Any,
    ) -> None:
        super().__init__(model, optimizer, **options)
        self.alpha = alpha
        self.beta = beta
        self.center: Flat | None = self._flat() if alpha is not None and center == "stored" else None

    def start(self) -> None:
        """The model is consensus and center from here on."""
        super().start()
        if self.center is not None:
            self.center.copy_(self.consensus)

    def standing(self) -> Standing:
        """As in cadence, and the center where one is stored."""
        return super().standing() if self.center is None else Standing(self.consensus, {"center": self.center})

    def mass(self, order: RoundOrder) -> float:
        """The stored center is drawn to the plain mean of the ranks that moved; else masses are as ordered."""
        if self.center is not None and not order.consensus:
            return 1.0 if order.mass > 0 else 0.0
        return order.mass

    def distance(self, contribution: Contribution) -> float:
        """As in cadence; the difference is kept, for it mostly is what will be added.

        Few large operations: a thread of low priority that is put aside while it holds the interpreter's lock would
        hold up training.
        """
        return squared(self._subtract(contribution.flat, contribution).parameters)

    def average(self, averager: Averager, order: RoundOrder) -> Outcome:
        """The round, and the difference that the training thread will add: 100 MB of arithmetic it need not do."""
        contribution = self.contribution
        outcome = super().average(averager, order)
        self._make_difference(outcome, contribution, is_there=order.mass > 0 and self.outer is None)
        return outcome

    def repaired(self, result: Sequence[Tensor], order: RoundOrder) -> Outcome:
        """As in the round itself: what was learnt since the snapshot stays."""
        outcome = super().repaired(result, order)
        self._make_difference(outcome, self.contribution, is_there=False)
        return outcome

    @torch.no_grad()
    def adopt(self, outcome: Outcome) -> None:
        """Blend or correct the parameters, overwrite the buffers, move the center."""
        if not outcome.moved:
            super().adopt(outcome)
            return
        mean = self.contribution.flat
        if outcome.nonfinite:
            self.transfer.put(mean)
            forget_nonfinite(self.optimizer)
        elif self.trained:
            self.transfer.add(_scratch(self.contribution), mean)
        else:
            self._settle_on(self._target(outcome, mean), self._pull(outcome), mean)
        self.advance()
        self._move_center(outcome)

    def _contribution(self, members: int, place: int) -> Contribution:
        made = super()._contribution(members, place)
        made.scratch = self._flat()
        return made

    def _make_difference(self, outcome: Outcome, contribution: Contribution, *, is_there: bool) -> None:
        """a * (target - snapshot). is_there: mean - snapshot has been computed already."""
        if not outcome.moved or outcome.nonfinite:
            return
        target, pull = self._target(outcome, contribution.flat), self._pull(outcome)
        if target is not contribution.flat or not is_there:
            self._subtract(target, contribution)
        if pull != 1.0:
            for part in _scratch(contribution).parameters:
                part.mul_(pull)

    def _subtract(self, target: Flat, contribution: Contribution) -> Flat:
        difference = _scratch(contribution)
        for ahead, wanted, taken in zip(difference.parameters, target.parameters, self.local.parameters, strict=True):
            torch.sub(wanted, taken, out=ahead)
        return difference

    def _target(self, outcome: Outcome, mean: Flat) -> Flat:
        return mean if self.center is None or outcome.order.consensus else self.center

    def _pull(self, outcome: Outcome) -> float:
        is_whole = self.alpha is None or outcome.order.consensus or not outcome.order.mass > 0
        return 1.0 if is_whole or self.alpha is None else self.alpha

    def _settle_on(self, target: Flat, pull: float, mean: Flat) -> None:
        """(1 - a) * local + a * target, where the snapshot still is the local weights."""
        if pull == 1.0:
            self.transfer.put(target, mean)
            return
        mixed = _scratch(self.contribution)
        for blend, here, wanted in zip(mixed.parameters, self.local.parameters, target.parameters, strict=True):
            torch.mul(here, 1.0 - pull, out=blend).add_(wanted, alpha=pull)
        self.transfer.put(mixed, mean)

    def _move_center(self, outcome: Outcome) -> None:
        if self.center is None:
            return
        beta = 1.0 if outcome.order.consensus else self.beta
        for center, mean in zip(self.center.parameters, self.contribution.flat.parameters, strict=True):
            center.mul_(1.0 - beta).add_(mean, alpha=beta)


def _scratch(contribution: Contribution) -> Flat:
    if contribution.scratch is None:
        raise ValueError("an elastic round needs a scratch buffer beside its contribution")
    return contribution.scratch
