"""An exponential moving average of the consensus: what each accepted round gave, weighted by how long ago it was.

Time is counted in samples of all ranks, so that the average means the same for every cadence and number of ranks: what
a round gave weighs half as much once `half_life` samples more were trained on. The weights of all rounds sum to one
from the first round on; nothing of the initial weights is in it. Parameters and float buffers, in float32 or better.

It changes when a round is adopted, on the training thread, and in all ranks alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.layout import model_layout
from flodl.engine.averaging.rule import Outcome, Rule

__all__ = ["Ema"]


class Ema:
    """flat: the average. mass: sum of the rounds' weights before they are made to sum to one; 0 before the first.

    half_life: samples. device: where it is kept (None: the CPU). with_buffers: float buffers are averaged, too.
    """

    def __init__(
        self, model: nn.Module, half_life: float, *, with_buffers: bool = True, device: torch.device | None = None
    ) -> None:
        self.flat = Flat(model_layout(model, with_buffers=with_buffers), device=device)
        self.mass = torch.zeros(1, dtype=torch.float64)
        self._half_life = half_life

    @property
    def has_begun(self) -> bool:
        """True from the first accepted round on."""
        return bool(self.mass.item())

    def start(self) -> None:
        """From a common start: nothing is averaged yet."""
        self.mass.zero_()

    @torch.no_grad()
    def follow(self, rule: Rule, outcome: Outcome) -> None:
        """The rule has adopted this round."""
        samples = outcome.order.samples
        if not outcome.moved or samples <= 0:
            return
        kept = 0.5 ** (samples / self._half_life)
        self.mass.mul_(kept).add_(1.0 - kept)
        _approach(self.flat, rule.standing().consensus, (1.0 - kept) / self.mass.item())

    def result(self) -> list[Tensor]:
        """Copies: enough for a rank that lacks a round."""
        return [*(vector.clone() for vector in self.flat.vectors), self.mass.to(self.flat.vectors[0].device, copy=True)]

    def load(self, result: Sequence[Tensor]) -> None:
        """Hold what another rank's `result` tells."""
        for mine, theirs in zip((*self.flat.vectors, self.mass), result, strict=True):
            mine.copy_(theirs)

    @contextmanager
    def shown_in(self, device: torch.device) -> Iterator[None]:
        """The model, which lies on `device`, holds the average inside, and what it held before outside."""
        held = Flat(self.flat.layout, device=device)
        held.read()
        self.flat.write()
        try:
            yield
        finally:
            held.write()


@torch.no_grad()
def _approach(average: Flat, consensus: Flat | None, part: float) -> None:
    """average += part * (consensus - average). Where the model itself is the consensus its own tensors are read."""
    if consensus is not None:
        mine, theirs = (*average.parameters, *average.buffers), (*consensus.parameters, *consensus.buffers)
    else:
        layout = average.layout
        mine, theirs = (*average.parameter_views, *average.buffer_views), (*layout.parameters, *layout.buffers)
    near = [there.to(here) for here, there in zip(mine, theirs, strict=True)]
    torch._foreach_lerp_(list(mine), near, part)  # pyright: ignore[reportPrivateImportUsage]
