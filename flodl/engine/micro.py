"""A batch in slices that fit the device. Weighted by their samples, their gradients add up to the whole batch's.

Out of memory: what was computed is dropped, the slice halved and the batch done again with the same random numbers.
Only forward and backward are tried again: an optimizer that ran out of memory may have moved some of its parameters.
BatchNorm sees slices, so its statistics, and gradients through it, are those of smaller batches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from flodl.engine.data import Batch
from flodl.engine.failpoints import reach
from flodl.engine.memory import is_out_of_memory, memory_words
from flodl.engine.precision import Precision
from flodl.engine.scalars import Recorder
from flodl.engine.seeding import seed_batch
from flodl.errors import FlodlError, NotReady

__all__ = ["Gradients", "Slices", "cut"]


class Gradients(NamedTuple):
    """A batch's gradients are gathered. loss: its mean. is_usable: False where float16 overflowed: there are none."""

    loss: Tensor
    recorded: Recorder
    is_usable: bool


@dataclass(kw_only=True)
class Slices:
    """Forward and backward of one model's batches. step: (model, batch) -> its mean loss. size: samples of a slice,
    None: whole batches. where: the rank, for messages. say: told when the slices get smaller.
    """

    model: nn.Module
    step: Callable[[nn.Module, Any], Tensor]
    optimizer: Optimizer
    precision: Precision
    device: torch.device
    seed: int = 0
    size: int | None = None
    where: str = "this rank"
    say: Callable[[str], None] = print
    _is_proven: bool = False  # a batch of slices of this size has gone through
    _failed_at_one: bool = False

    def gradients(self, batch: Batch) -> Gradients:
        """Gather the batch's gradients. Raises NotReady where not even one sample fits."""
        while True:
            seed_batch(self.seed, batch.epoch, batch.first_position, self.device)
            buffers = [] if self._is_proven else [buffer.clone() for buffer in self.model.buffers()]
            trouble = ""
            try:
                found = self._gather(batch)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                trouble = str(error) or type(error).__name__
            else:
                self._is_proven, self._failed_at_one = True, False
                return found
            self._clean_up(buffers)  # out here nothing holds the failed pass's tensors any more
            self._shrink(batch.samples, trouble)

    def _gather(self, batch: Batch) -> Gradients:
        recorded, total = Recorder(), None
        for inputs, samples in cut(batch.inputs, batch.samples, self.size):
            reach("step.inside")
            with recorded.during(samples), self.precision.cast:
                loss = self.step(self.model, inputs)
            if samples < batch.samples:
                loss = loss * (samples / batch.samples)
            self.precision.backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return Gradients(total, recorded, self.precision.settle(self.optimizer))

    def _clean_up(self, buffers: list[Tensor]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=False):
                buffer.copy_(before)
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _shrink(self, samples: int, trouble: str) -> None:
        """Half the slice from now on; one sample is tried twice."""
        before = min(samples, self.size or samples)
        if before == 1 and self._failed_at_one:
            raise NotReady(f"{self.where}: one sample of a batch does not fit: {memory_words(self.device, trouble)}")
        self._failed_at_one = before == 1
        self.size, self._is_proven = max(1, before // 2), False
        self.say(f"out of memory with {before} samples at a time; the batch is done again in slices of {self.size}")


def cut(inputs: Any, samples: int, size: int | None) -> Iterator[tuple[Any, int]]:
    """(slice, its samples): as few slices of at most `size` samples as can be, alike to one sample.

    Raises FlodlError for inputs that cannot be cut.
    """
    count = 1 if size is None else -(-samples // size)
    if count <= 1:
        yield inputs, samples
        return
    for index in range(count):
        start, stop = index * samples // count, (index + 1) * samples // count
        yield _part(inputs, samples, slice(start, stop)), stop - start


def _is_batched(value: Any, samples: int) -> bool:
    """Whether a tensor that has one entry per sample is in it."""
    if isinstance(value, Tensor):
        return value.dim() > 0 and len(value) == samples
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return isinstance(value, (list, tuple)) and any(_is_batched(item, samples) for item in value)


def _part(value: Any, samples: int, chosen: slice) -> Any:
    """A batch is made of tensors and lists that have one entry per sample; what has no length belongs to all."""
    if isinstance(value, Mapping):
        return {name: _part(item, samples, chosen) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        is_per_sample = len(value) == samples and not any(_is_batched(item, samples) for item in value)
        return value[chosen] if is_per_sample else tuple(_part(item, samples, chosen) for item in value)
    if isinstance(value, Tensor) and value.dim():
        if len(value) != samples:
            raise FlodlError(
                f"a batch of {samples} samples holds a tensor of shape {tuple(value.shape)}: it cannot be cut into "
                "slices (trainer.micro_batch, trainer.accumulate) unless its first dimension counts samples"
            )
        return value[chosen]
    if value is None or isinstance(value, (Tensor, bool, int, float, str)):
        return value
    raise FlodlError(
        f"a batch holds a {type(value).__name__}: it cannot be cut into slices (trainer.micro_batch, "
        "trainer.accumulate); let collate_fn make tensors, lists, tuples or dicts"
    )
