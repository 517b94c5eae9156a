"""What one rank puts into a round, and what comes out of the sum.

A vector holds mass x parameters, moved x buffers, and at its end the tail: mass, moved, one slot per member with its
milliseconds since the last round ended, and what the rule adds. A rank that is idle or not finite sends zeros and
mass 0: its payload is not read at all (0 x NaN is NaN), and nobody else need know.

Variances of normalisation layers are pooled with the spread of the means: the second moment is averaged about the
last common mean, which every member holds; about zero it would lose the variance's digits where the mean is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.layout import Layout

__all__ = ["Contribution", "Sums"]

MASS, MOVED, ARRIVALS = 0, 1, 2


@dataclass(frozen=True)
class Sums:
    """Totals of a round: sum of masses, number of ranks that moved, how long the first-come waited for the last, ms."""

    mass: float
    moved: float
    waited_ms: float


class Contribution:
    """The work buffer of one generation's rounds: filled, summed in place by the group, then settled to the mean.

    members, place: size of the generation and this rank's place in it. extra: more tail elements for the rule.
    pooled: pool variances; else buffers are plain means. scratch, velocity: buffers of this generation, for the rule
    and its outer optimizer.
    """

    def __init__(
        self,
        layout: Layout,
        members: int,
        place: int,
        *,
        extra: int = 0,
        pooled: bool = True,
        device: torch.device | None = None,
    ) -> None:
        self.flat = Flat(layout, tail=ARRIVALS + members + extra, device=device)
        self.place = place
        self.scratch: Flat | None = None
        self.velocity: Flat | None = None
        self.arrivals = slice(ARRIVALS, ARRIVALS + members)
        self.extra: Tensor = self.flat.tail[ARRIVALS + members :]
        self.moments = layout.moments if pooled else ()

    def fill(self, values: Flat, mass: float, reference: Flat, arrival_ms: float) -> None:
        """Weigh this rank's values in; of a mass of 0 nothing is read. The rule's extra elements become zeros."""
        flat = self.flat
        head = [mass, 1.0] if mass > 0 else [0.0, 0.0]
        arrivals = [0.0] * (self.arrivals.stop - self.arrivals.start)
        arrivals[self.place] = arrival_ms
        known = torch.tensor([*head, *arrivals], dtype=torch.float64)
        flat.tail[: self.arrivals.stop].copy_(known)  # one transfer to a GPU
        self.extra.zero_()
        if not mass > 0:
            for vector in (*flat.parameters, *flat.buffers):
                vector.zero_()
            return
        for mine, value in zip(flat.parameters, values.parameters, strict=True):
            torch.mul(value, mass, out=mine)
        for mine, value in zip(flat.buffers, values.buffers, strict=True):
            mine.copy_(value)
        for mean, variance in self.moments:
            flat.buffer_views[variance].add_((flat.buffer_views[mean] - reference.buffer_views[mean]).square_())

    def load(self, result: Sequence[Tensor]) -> None:
        """Hold another rank's settled round: its values per vector and then, where the rule has some, its extra."""
        for vector, values in zip(self.flat.vectors, result, strict=False):
            vector[: values.numel()].copy_(values)
        if self.extra.numel():
            self.extra.copy_(result[-1])

    def settle(self, reference: Flat) -> Sums:
        """Turn the members' sum into their mean, in place. Where nobody moved the values stay zeros: no result."""
        flat = self.flat
        tail = flat.tail[: self.arrivals.stop].tolist()  # one transfer from a GPU
        mass, moved, arrivals = tail[MASS], tail[MOVED], tail[self.arrivals]
        waited = max(arrivals) - arrivals[self.place]
        if moved:
            for vector in flat.parameters:
                vector.div_(mass)
            for vector in flat.buffers:
                vector.div_(moved)
            for mean, variance in self.moments:
                spread = (flat.buffer_views[mean] - reference.buffer_views[mean]).square_()
                flat.buffer_views[variance].sub_(spread).clamp_(min=0)
        return Sums(mass, moved, waited)
