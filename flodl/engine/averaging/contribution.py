"""What one rank puts into a round, and what comes out of the sum.

A vector holds mass x parameters, moved x buffers, and at its end the tail: mass, moved, one slot per member with its
milliseconds since the last round ended, and what the rule adds. A rank that is idle or not finite sends zeros and
mass 0: its payload is not read at all (0 x NaN is NaN), and nobody else need know.

Variances of normalisation layers are pooled with the spread of the means: the second moment is averaged about the
last common mean, which every member holds; about zero it would lose the variance's digits where the mean is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.layout import Layout

__all__ = ["Contribution", "Sums"]

MASS, MOVED, ARRIVALS = 0, 1, 2
TINY = 1e-30  # below any total that is not zero: who divides zeros by it has zeros


@dataclass(frozen=True)
class Sums:
    """Totals of a round: sum of masses, number of ranks that moved, how long the first-come waited for the last, ms."""

    mass: float
    moved: float
    waited_ms: float


class Contribution:
    """The work buffer of one generation's rounds: filled, summed in place by the group, then settled to the mean.

    members, place: size of the generation and this rank's place in it. extra: how many elements more the tail has for
    the rule. pooled: pool variances; else buffers are plain means. totals: what the rule's extra elements summed up to.
    scratch, velocity: buffers of this generation, for the rule and its outer optimizer. is_alone: one member, whose
    values are the mean as they are: nothing is weighed, and training is that of a plain loop to the last bit.

    Nothing here waits for a GPU: it would be idle while the next operation is launched. So they are few and large, the
    sums divide themselves, and who wants them as numbers reads the tail when the round has ended (`read`).
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
        self.totals = [0.0] * extra
        self.is_alone = members == 1
        self._pooled = pooled

    def fill(
        self,
        values: Flat,
        mass: float,
        reference: Flat,
        arrival_ms: float,
        extra: Sequence[float] = (),
        *,
        is_finite: Tensor | None = None,
    ) -> None:
        """Weigh this rank's values in; of a mass of 0 nothing is read.

        extra: the rule's own elements, whatever the mass (zeros where there are none). is_finite: one bool where the
        values lie; False makes what was weighed in that of a mass of 0. None: they are.
        """
        flat = self.flat
        head = [mass, 1.0] if mass > 0 else [0.0, 0.0]
        arrivals = [0.0] * (self.arrivals.stop - self.arrivals.start)
        arrivals[self.place] = arrival_ms
        own = [*head, *arrivals, *(extra or [0.0] * len(self.totals))]
        tail = torch.tensor(own, dtype=flat.tail.dtype, pin_memory=flat.tail.is_cuda)
        flat.tail.copy_(tail, non_blocking=True)
        if not mass > 0:
            for vector in flat.values:
                vector.zero_()
            return
        if self.is_alone:
            flat.copy_(values)
        else:
            self._weigh(values, mass, reference)
        if is_finite is not None:
            flat.tail[:ARRIVALS].mul_(is_finite)
            for vector in flat.values:
                vector.masked_fill_(~is_finite, 0.0)

    def _weigh(self, values: Flat, mass: float, reference: Flat) -> None:
        flat = self.flat
        for mine, value in zip(flat.parameters, values.parameters, strict=True):
            torch.mul(value, mass, out=mine)
        for mine, value in zip(flat.buffers, values.buffers, strict=True):
            mine.copy_(value)
        for variance, spread in self._spreads(reference):
            variance.add_(spread)

    def load(self, result: Sequence[Tensor]) -> None:
        """Hold another rank's settled round: its values per vector and then, where the rule has some, its extra."""
        for vector, values in zip(self.flat.vectors, result, strict=False):
            vector[: values.numel()].copy_(values)
        if self.totals:
            self.totals = result[-1].tolist()

    def settle(self, reference: Flat) -> None:
        """Turn the members' sum into their mean, in place. Where nobody moved the values stay zeros: no result."""
        if self.is_alone:
            return
        flat = self.flat
        mass, moved = flat.tail[MASS].clamp(min=TINY), flat.tail[MOVED].clamp(min=TINY)
        for vector in flat.parameters:
            vector.div_(mass)
        for vector in flat.buffers:
            vector.div_(moved)
        for variance, spread in self._spreads(reference):
            variance.sub_(spread).clamp_(min=0)

    def read(self, tail: Tensor | None = None) -> Sums:
        """The totals; waits for a GPU. tail: a copy of this one's that is at hand."""
        told = (self.flat.tail if tail is None else tail).tolist()
        arrivals = told[self.arrivals]
        self.totals = told[self.arrivals.stop :]
        return Sums(told[MASS], told[MOVED], max(arrivals) - arrivals[self.place])

    def over(self, held: Flat, into: Flat) -> None:
        """The settled values into a third one on the same device; `held`'s buffers where nobody moved."""
        for mine, out in zip(self.flat.parameters, into.parameters, strict=True):
            out.copy_(mine)
        has_moved = self.flat.tail[MOVED] > 0
        for mine, kept, out in zip(self.flat.buffers, held.buffers, into.buffers, strict=True):
            torch.where(has_moved, mine, kept, out=out)

    def _spreads(self, reference: Flat) -> Iterator[tuple[Tensor, Tensor]]:
        """Per vector that has some: variances, and the squares of how far their means are from the last common ones."""
        for variance, mean, common in zip(self.flat.variances, self.flat.means, reference.means, strict=True):
            if self._pooled and variance.numel():
                yield variance, (mean - common).square_()
