"""Averaging for a training loop of the user's own: parameters, gradients or buffers of any modules, over all ranks.

Every call is one that all ranks make, in the same order. Values are packed into flat vectors (float32, float64 where
a tensor is that; complex ones as pairs), summed, and written back; a rank whose values are not finite is left out and
adopts the others'. While a rank is in such a call it says so: whoever waits for a hung one is not taken for it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, SupportsFloat, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from flodl.decide.messages import FormGroup
from flodl.engine.averaging.layout import fingerprint, model_layout, unshared
from flodl.engine.averaging.start import from_bytes, to_bytes
from flodl.errors import FlodlError, NotReady, RunFailed
from flodl.ports import Averager

__all__ = ["RankAverager", "Signs"]

_SAME_CODE = "build the same modules on all ranks; cluster.deploy.code=rsync brings hosts the same code"
WIDTHS = (torch.float32, torch.float64)
MASS, STRAY = -2, -1  # behind the values: the sum of weights, and how many ranks are not finite


class Signs(Protocol):
    """What a rank says of itself beside its work, carried by its link: see `flodl.decide.vigil`."""

    progress: int
    activity: str


class RankAverager:
    """One rank's part. Made for it by flodl: it is ``ctx.averager`` in a loop that `Trainer.run_loop` runs.

    rounds: averagings so far. Raises RunFailed where another rank is lost: the run is then over.
    """

    def __init__(self, averager: Averager, rank: int, group: FormGroup, device: torch.device, signs: Signs) -> None:
        self.rounds = 0
        self._averager, self._rank, self._group, self._device, self._signs = averager, rank, group, device, signs
        self._modules = nn.ModuleList()
        self._parameters: list[Tensor] = []

    @torch.no_grad()
    def watch(self, *modules: nn.Module) -> None:
        """Average these from now on; all ranks adopt the parameters and buffers that rank 0 has now.

        Call it once, after the modules were moved to ``ctx.device`` and before an optimizer has stepped. Raises
        NotReady where a rank has other modules.
        """
        if len(self._modules) or not modules:
            raise FlodlError("RankAverager.watch is called once, with every module that is to be averaged")
        _require_modules(modules)
        self._modules = nn.ModuleList(modules)
        self.compare("ctx.averager.watch(...)", fingerprint(self._modules), "the models' tensors differ", _SAME_CODE)
        self._parameters = [p for p in _unique(modules, nn.Module.named_parameters) if p.requires_grad]
        tensors = [*_unique(modules, nn.Module.named_parameters), *_unique(modules, nn.Module.named_buffers)]
        start = to_bytes(tensors, self._device)
        generation, source = self._group.generation, self._group.ranks[0]
        self._call(lambda: self._averager.broadcast(generation, source, [start]))
        from_bytes(start, tensors)

    @torch.no_grad()
    def average_parameters(self, weight: float = 1.0) -> None:
        """Trainable parameters become their mean over ranks. weight: this rank's, 0 or more: its samples, for example;
        with equal weights it is the plain mean."""
        weight = self._begin("average_parameters", weight)
        if not self._mean(self._parameters, weight):
            raise RunFailed("nothing to average: no rank has finite parameters and a weight above 0")

    @torch.no_grad()
    def weighted_average_gradients(self, counts: float) -> None:
        """Gradients become their mean over all ranks' samples: call it between ``backward()`` and ``step()``.

        counts: the samples that this rank's gradients are a mean over; 0 where it had none. A parameter that got a
        gradient nowhere keeps None; where only some ranks have one, it counts as 0 on the others. Where no rank has
        finite ones they become NaN on all: a GradScaler skips that step, on every rank.
        """
        counts = self._begin("weighted_average_gradients", counts)
        own = [p.grad is not None for p in self._parameters]
        flags = torch.tensor(own, dtype=torch.float32, device=self._device)
        self._combine([flags])
        used = [p for p, number in zip(self._parameters, flags.tolist(), strict=True) if number]
        for parameter in used:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.resolve_conj()
        gradients = [p.grad for p in used if p.grad is not None]
        if not self._mean(gradients, counts):
            for gradient in gradients:
                gradient.fill_(math.nan)

    @torch.no_grad()
    def average_buffers(self) -> None:
        """Float buffers become their mean over ranks; variances of normalisation layers are pooled: they hold the
        spread of the ranks' means, too. Where no rank has finite ones they stay as they are."""
        self._begin("average_buffers", 1.0)
        layout = model_layout(self._modules)
        # float16 has no room for a square; and what is left of a mean that failed must not be in a live buffer
        copies = [tensor.to(dtype=_vector_dtype(tensor), copy=True) for tensor in layout.buffers]
        weight = 1.0 if all(bool(tensor.isfinite().all()) for tensor in copies) else math.nan  # in both means
        variances = {variance for _, variance in layout.moments}
        before = {mean: copies[mean].clone() for mean, _ in layout.moments}
        means = [tensor for place, tensor in enumerate(copies) if place not in variances]
        pooled = [copies[variance] for _, variance in layout.moments]
        # about the common mean, which is known first: about zero a large mean would cost the variance its digits
        if not self._mean(means, weight):
            return
        for mean, variance in layout.moments:
            copies[variance].add_((before[mean] - copies[mean]).square_())
        if self._mean(pooled, weight):
            for tensor, copied in zip(layout.buffers, copies, strict=True):
                tensor.copy_(copied)

    def compare(self, call: str, own: str, constraint: str, remedy: str) -> None:
        """All ranks are in this call, and have the same there: `own`, of which a hash is exchanged. Raises NotReady.

        A fixed number of elements: whatever differs, this exchange is the same on all.
        """
        ranks = self._group.ranks
        digests = [hashlib.sha256(text.encode()).digest() for text in (call, own)]
        row = torch.tensor([list(digest) for digest in digests], dtype=torch.float32)
        table = torch.zeros((len(ranks), *row.shape), device=self._device)
        table[ranks.index(self._rank)] = row.to(self._device)
        self._combine([table.view(-1)])
        calls, held = ([tuple(part) for part in table[:, column].tolist()] for column in (0, 1))
        self._require_equal(
            calls, f"{call}: another call was made", "make the same calls in the same order on all ranks"
        )
        self._require_equal(held, f"{call}: {constraint}", remedy)

    def _require_equal(self, rows: Sequence[tuple[float, ...]], why: str, remedy: str) -> None:
        """rows: one per rank."""
        right = max(rows, key=rows.count)  # of equals the first: rank 0's
        others = [rank for rank, row in zip(self._group.ranks, rows, strict=True) if row != right]
        if others:
            same = self._group.ranks[rows.index(right)]
            named = ", ".join(f"rank {rank}" for rank in others)
            raise NotReady(f"{why}: {named} {'are' if len(others) > 1 else 'is'} not as rank {same}; {remedy}")

    # --------------------------------------------------------------------------------------------------------------

    def _mean(self, tensors: Sequence[Tensor], weight: float) -> bool:
        """These tensors become their weighted mean; False where no rank has finite ones, and they are as they were.

        weight NaN: this rank's are not. What a mean needs rides along at the end of each vector. Raises RunFailed where
        all weights are 0.
        """
        if not tensors:
            return True
        parts = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
        groups = [[part for part in parts if _vector_dtype(part) is dtype] for dtype in WIDTHS]
        pairs = [(group, dtype) for group, dtype in zip(groups, WIDTHS, strict=True) if group]
        vectors = [_packed(group, dtype, self._device) for group, dtype in pairs]
        for vector in vectors:
            vector.mul_(weight) if weight else vector.zero_()
        is_finite = all(bool(vector.isfinite().all()) for vector in vectors)
        for vector in vectors:
            if not is_finite:
                vector.zero_()
            vector[MASS], vector[STRAY] = weight if is_finite else 0.0, 0.0 if is_finite else 1.0
        self._combine(vectors)
        for (group, _), vector in zip(pairs, vectors, strict=True):
            total, strays = float(vector[MASS]), float(vector[STRAY])
            if not total and strays:
                return False
            if not total:
                raise RunFailed("nothing to average: no rank has a weight above 0")
            _unpack(vector[:MASS].div_(total), group)
        return True

    def _combine(self, vectors: Sequence[Tensor]) -> None:
        self._call(lambda: self._averager.combine(self._group.generation, self.rounds, vectors))

    def _call(self, work: Callable[[], None]) -> None:
        self._signs.activity = "average"
        try:
            work()
        except RuntimeError as error:
            told = "another rank is gone, or has left its loop after fewer calls (all ranks make the same)"
            raise RunFailed(f"an averaging failed: {told}: {error}") from error
        finally:
            self._signs.progress += 1
            self._signs.activity = "loop"

    def _begin(self, call: str, weight: object) -> float:
        """A round begins. Returns the weight as a number."""
        if not len(self._modules):
            raise FlodlError("ctx.averager.watch(module, ...) comes first: it says what is averaged")
        number = _number(weight)
        if not (math.isfinite(number) and number >= 0.0):
            raise FlodlError(f"ctx.averager.{call}: a weight is a finite number, 0 or more, and not {_shown(weight)}")
        self.rounds += 1
        return number


def _require_modules(given: Sequence[object]) -> None:
    """Raise FlodlError for what is no module, or has not all of its tensors yet."""
    for one in given:
        wanted = ""
        if isinstance(one, list | tuple | dict | Iterator):
            wanted = "unpack it: watch(*modules)"
        elif isinstance(one, type):
            wanted = "give a module that is made of it"
        elif not isinstance(one, nn.Module):
            wanted = "give the torch.nn.Module whose parameters are to be averaged"
        elif any(is_lazy(tensor) for tensor in (*one.parameters(), *one.buffers())):
            wanted = "its lazy layers have no tensors yet: run a batch through it first, on every rank"
        if wanted:
            raise FlodlError(f"ctx.averager.watch was given {_shown(one)}; {wanted}")


def _number(given: object) -> float:
    """A number, or a tensor of one element, as a float; NaN for anything else."""
    try:
        return math.nan if isinstance(given, str | bytes) else float(cast("SupportsFloat", given))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def _shown(given: object) -> str:
    """What was given, for people: short, whatever it is."""
    if isinstance(given, Tensor):
        return f"{given.item()}" if given.numel() == 1 else f"a tensor of shape {tuple(given.shape)}"
    if isinstance(given, str | int | float | None):
        return f"{given!r:.60}"
    return f"the class {given.__name__}" if isinstance(given, type) else f"an object of type {type(given).__name__}"


def _unique(modules: Sequence[nn.Module], named: Callable[[nn.Module], Iterator[tuple[str, Tensor]]]) -> list[Tensor]:
    """Tensors of all modules, what shares memory once."""
    return [t for _, t in unshared([(f"{i}.{n}", t) for i, m in enumerate(modules) for n, t in named(m)])]


def _vector_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _packed(tensors: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """All elements, and two more."""
    parts = [tensor.detach().to(device=device, dtype=dtype).reshape(-1) for tensor in tensors]
    return torch.cat([*parts, torch.zeros(-MASS, dtype=dtype, device=device)])


def _unpack(vector: Tensor, tensors: Sequence[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(vector[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()
