"""Averaging for a training loop of the user's own: parameters, gradients or buffers of any modules, over all ranks.

Every call is one that all ranks make, in the same order. Values are packed into flat vectors (float32, float64 where
a tensor is that), summed, and written back; a rank whose values are not finite is left out and adopts the others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from flodl.engine.averaging.layout import model_layout, unshared
from flodl.engine.averaging.start import from_bytes, to_bytes
from flodl.errors import FlodlError, RunFailed
from flodl.ports import Averager

__all__ = ["RankAverager"]


class RankAverager:
    """One rank's part. Made for it by flodl: it is ``ctx.averager`` in a loop that `Trainer.run_loop` runs.

    rounds: averagings so far. Raises RunFailed where another rank is lost: the run is then over.
    """

    def __init__(self, averager: Averager, ranks: Sequence[int], device: torch.device, *, generation: int = 1) -> None:
        self.rounds = 0
        self._averager, self._ranks, self._device, self._generation = averager, tuple(ranks), device, generation
        self._modules: tuple[nn.Module, ...] = ()
        self._parameters: list[Tensor] = []

    @torch.no_grad()
    def watch(self, *modules: nn.Module) -> None:
        """Average these from now on; all ranks adopt the parameters and buffers that rank 0 has now.

        Call it once, after the modules were moved to ``ctx.device`` and before an optimizer has stepped.
        """
        if self._modules or not modules:
            raise FlodlError("RankAverager.watch is called once, with every module that is to be averaged")
        self._modules = modules
        self._parameters = [p for p in _unique(modules, nn.Module.named_parameters) if p.requires_grad]
        tensors = [*_unique(modules, nn.Module.named_parameters), *_unique(modules, nn.Module.named_buffers)]
        start = to_bytes(tensors, self._device)
        self._call(lambda: self._averager.broadcast(self._generation, self._ranks[0], [start]))
        from_bytes(start, tensors)

    @torch.no_grad()
    def average_parameters(self, weight: float = 1.0) -> None:
        """Trainable parameters become their mean over ranks. weight: this rank's, 0 or more: its samples, for example;
        with equal weights it is the plain mean."""
        self._require()
        self._averaged(self._parameters, weight)

    @torch.no_grad()
    def weighted_average_gradients(self, counts: float) -> None:
        """Gradients become their mean over all ranks' samples: call it between ``backward()`` and ``step()``.

        counts: the samples that this rank's gradients are a mean over; 0 where it had none. A parameter that got a
        gradient nowhere keeps None; where only some ranks have one, it counts as 0 on the others.
        """
        self._require()
        own = [p.grad is not None for p in self._parameters]
        flags = torch.tensor(own, dtype=torch.float32, device=self._device)
        self._combine([flags])
        used = [p for p, number in zip(self._parameters, flags.tolist(), strict=True) if number]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self._averaged([p.grad for p in used if p.grad is not None], counts)

    @torch.no_grad()
    def average_buffers(self) -> None:
        """Float buffers become their mean over ranks; variances of normalisation layers are pooled: they hold the
        spread of the ranks' means, too."""
        self._require()
        buffers: list[Tensor] = []
        moments: list[tuple[Tensor, Tensor]] = []
        for module in self._modules:
            layout = model_layout(module)
            buffers += layout.buffers
            moments += [(layout.buffers[mean], layout.buffers[variance]) for mean, variance in layout.moments]
        for mean, variance in moments:
            variance.add_(mean.square())
        self._averaged(buffers, 1.0)
        for mean, variance in moments:
            variance.sub_(mean.square()).clamp_(min=0.0)

    # --------------------------------------------------------------------------------------------------------------

    def _averaged(self, tensors: Sequence[Tensor], weight: float) -> None:
        """These tensors become their weighted mean. The weight rides along as the last element of each vector."""
        if weight < 0.0 or weight != weight:
            raise FlodlError(f"a weight is 0 or more, and not {weight}")
        groups = [[t for t in tensors if (t.dtype is torch.float64) is double] for double in (False, True)]
        dtypes = (torch.float32, torch.float64)
        pairs = [(group, dtype) for group, dtype in zip(groups, dtypes, strict=True) if group]
        vectors = [_packed(group, dtype, self._device) for group, dtype in pairs]
        mass = weight if all(bool(vector.isfinite().all()) for vector in vectors) else 0.0
        for vector in vectors:
            vector.mul_(mass) if mass else vector.zero_()
            vector[-1] = mass
        self._combine(vectors)
        for (group, _), vector in zip(pairs, vectors, strict=True):
            total = float(vector[-1])
            if not total:
                raise RunFailed("nothing to average: no rank has finite values and a weight above 0")
            _unpack(vector[:-1].div_(total), group)

    def _combine(self, vectors: Sequence[Tensor]) -> None:
        self.rounds += 1
        self._call(lambda: self._averager.combine(self._generation, self.rounds, vectors))

    def _call(self, work: Callable[[], None]) -> None:
        try:
            work()
        except RuntimeError as error:
            raise RunFailed(f"an averaging failed: {error}") from error

    def _require(self) -> None:
        if not self._modules:
            raise FlodlError("ctx.averager.watch(module, ...) comes first: it says what is averaged")


def _unique(modules: Sequence[nn.Module], named: Callable[[nn.Module], Iterator[tuple[str, Tensor]]]) -> list[Tensor]:
    """Tensors of all modules, what shares memory once."""
    return [t for _, t in unshared([(f"{i}.{n}", t) for i, m in enumerate(modules) for n, t in named(m)])]


def _packed(tensors: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """All elements, and one more."""
    parts = [tensor.detach().to(device=device, dtype=dtype).reshape(-1) for tensor in tensors]
    return torch.cat([*parts, torch.zeros(1, dtype=dtype, device=device)])


def _unpack(vector: Tensor, tensors: Sequence[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(vector[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
