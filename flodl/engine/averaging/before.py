"""What a step that may have to be taken back has changed: copies of parameters and optimizer state, beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from flodl.engine.averaging.flat import copy
from flodl.engine.averaging.rule import parameters_of

__all__ = ["Before", "is_torchs"]


class Before:
    """The state of one optimizer and its parameters as it was at the last `take`.

    The copies cost as much memory as what they are copies of, on the same devices.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._copies: list[Tensor] = []
        self._originals: list[Tensor] = []
        self._pairs: list[tuple[list[Tensor], list[Tensor]]] = []  # (copies, originals) of one kind of device
        self._fits = False
        self._state: list[tuple[Tensor, dict[Any, Any]]] = []
        self._groups: list[dict[str, Any]] = []

    def prepare(self) -> bool:
        """Make room for copies of what stands now; whether there is.

        None for optimizers that are not torch's: they may keep more than their state. None either where a card has
        not twice the room: what it needs for training comes first.
        """
        if not is_torchs(self._optimizer):
            return False
        present = self._present()
        if not _are_the_same(present, self._originals):
            has_changed = [_kind(tensor) for tensor in present] != [_kind(tensor) for tensor in self._originals]
            self._originals = present
            if has_changed:
                self._copies.clear()  # before the next ones are made
                self._fits = _is_room_for(present)
                self._copies = [torch.empty_like(tensor) for tensor in present] if self._fits else []
            self._pairs = _by_device(self._copies, present) if self._fits else []
        return self._fits

    @torch.no_grad()
    def take(self) -> None:
        """Copy what stands now. After `prepare`."""
        self._state = [(parameter, dict(held)) for parameter, held in self._optimizer.state.items()]
        self._groups = [
            {name: value for name, value in group.items() if name != "params"} for group in self._optimizer.param_groups
        ]
        for copies, originals in self._pairs:
            copy(copies, originals)

    @torch.no_grad()
    def restore(self) -> None:
        """Make it so again."""
        for copies, originals in self._pairs:
            copy(originals, copies)
        self._optimizer.state.clear()
        for parameter, held in self._state:
            self._optimizer.state[parameter] = held
        for group, held in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.update(held)

    def _present(self) -> list[Tensor]:
        held = [value for state in self._optimizer.state.values() for value in state.values()]
        return [*parameters_of(self._optimizer), *(value for value in held if isinstance(value, Tensor))]


def is_torchs(optimizer: Optimizer) -> bool:
    """Whether it is known what an optimizer keeps between steps."""
    return type(optimizer).__module__.startswith("torch.optim.")


def _are_the_same(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _is_room_for(tensors: Sequence[Tensor]) -> bool:
    on_card = [tensor for tensor in tensors if tensor.is_cuda]
    if not on_card:
        return True
    device = on_card[0].device
    wanted = sum(tensor.numel() * tensor.element_size() for tensor in on_card)
    held_back = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return 2 * wanted < torch.cuda.mem_get_info(device)[0] + held_back


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.stride()


def _by_device(copies: Sequence[Tensor], originals: Sequence[Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Step counters may lie on the CPU beside parameters on a card: each kind is copied in one operation."""
    pairs = list(zip(copies, originals, strict=True))
    kinds = [[pair for pair in pairs if pair[1].is_cuda == on_card] for on_card in (True, False)]
    return [([mine for mine, _ in kind], [theirs for _, theirs in kind]) for kind in kinds if kind]
