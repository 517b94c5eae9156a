"""An optimizer on the consensus: between the mean of a round and its adoption. Every rank takes the same step.

g = previous consensus - mean; v = mu v + g. SlowMo: new = previous - lr v; DiLoCo (Nesterov): new = previous -
lr (mu v + g). The first round takes none: nothing has moved the consensus yet. Parameters only, in the vectors' own
float32 or better; buffers are the round's.

`propose` runs on the averaging thread and writes into the contribution alone; `commit` makes its velocity this one's,
on the training thread. The previous consensus is the rule's own: what everybody adopted last.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flodl.engine.averaging.contribution import Contribution
from flodl.engine.averaging.flat import Flat
from flodl.spec.outer import DiLoCoConfig, SlowMoConfig

__all__ = ["Outer"]


class Outer:
    """velocity: v. rounds: how many were accepted since the common start, one element, so that it can be stored."""

    def __init__(self, config: SlowMoConfig | DiLoCoConfig, velocity: Flat) -> None:
        self.velocity = velocity
        self.rounds = torch.zeros(1, dtype=torch.float64)
        self.resets_inner = config.reset_inner
        self._lr, self._mu = config.lr, config.mu
        self._looks_ahead = isinstance(config, DiLoCoConfig)

    def start(self) -> None:
        """From a common start: at rest."""
        for part in self.velocity.parameters:
            part.zero_()
        self.rounds.zero_()

    @torch.no_grad()
    def propose(self, contribution: Contribution, previous: Flat) -> None:
        """Turn the settled mean into the next consensus, in place, and make the next velocity beside it."""
        ahead = _next_velocity(contribution)
        if not self.rounds.item():
            for part in ahead.parameters:
                part.zero_()
            return
        parts = (contribution.flat.parameters, previous.parameters, self.velocity.parameters, ahead.parameters)
        for mean, before, velocity, coming in zip(*parts, strict=True):
            torch.sub(before, mean, out=coming)  # g
            if self._looks_ahead:
                torch.sub(before, coming, alpha=self._lr, out=mean)
                coming.add_(velocity, alpha=self._mu)
                mean.sub_(coming, alpha=self._lr * self._mu)
            else:
                coming.add_(velocity, alpha=self._mu)
                torch.sub(before, coming, alpha=self._lr, out=mean)

    def load(self, contribution: Contribution, velocity: Sequence[Tensor]) -> None:
        """The velocity that another rank holds after the round is what will be committed."""
        for part, value in zip(_next_velocity(contribution).parameters, velocity, strict=True):
            part.copy_(value)

    def commit(self, contribution: Contribution) -> None:
        """The round is accepted here. The old velocity's memory is the next proposal's."""
        self.velocity, contribution.velocity = _next_velocity(contribution), self.velocity
        self.rounds += 1


def _next_velocity(contribution: Contribution) -> Flat:
    if contribution.velocity is None:
        raise ValueError("an outer optimizer needs a vector for the next velocity beside its contribution")
    return contribution.velocity
