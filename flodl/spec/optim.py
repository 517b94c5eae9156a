"""What an ``optim`` block holds: parameter groups and the rate by world size, which are ours, and the optimizer's own
arguments. Those are its callee's business, but for the numbers that every optimizer of torch's judges alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.component import Component
from flodl.spec.reader import Reader
from flodl.spec.value import NonNegative, Value

__all__ = ["OptimGroups", "read_groups"]

Pattern = Annotated[str, Meta(min_length=1, description="bias, norm, or a pattern of parameter names")]


class OptimGroups(Value, frozen=True, kw_only=True):
    """no_decay: parameters that get weight_decay 0: `bias`, `norm` (of normalisation layers), or patterns of names such
    as *.embedding.weight. lr_scale: what the base rate of every group is multiplied by: nothing, the number of ranks,
    or its square root."""

    no_decay: tuple[Pattern, ...] = ()
    lr_scale: Literal["none", "linear", "sqrt"] = "none"

    def factor(self, num_ranks: int) -> float:
        """What the base learning rate is multiplied by."""
        match self.lr_scale:
            case "linear":
                return float(num_ranks)
            case "sqrt":
                return math.sqrt(num_ranks)
            case "none":
                return 1.0


_Decay = Annotated[float, Meta(ge=0, lt=1)]


class _TorchNumbers(Value, frozen=True, kw_only=True):
    """What torch's optimizers want of the arguments that most of them have."""

    lr: NonNegative = 0.0
    momentum: NonNegative = 0.0
    weight_decay: NonNegative = 0.0
    eps: NonNegative = 0.0
    betas: Annotated[tuple[_Decay, _Decay], Meta(description="two numbers >= 0 and < 1")] = (0.0, 0.0)


def read_groups(optim: Component) -> tuple[Component, OptimGroups, list[Problem]]:
    """The optimizer as it is called, the groups, and what is wrong with them."""
    own = {name: value for name, value in optim.args.items() if name in OptimGroups.__struct_fields__}
    reader = Reader()
    groups = reader.value(OptimGroups, own, "optim")
    rest = {name: value for name, value in optim.args.items() if name not in own}
    reader.value(_TorchNumbers, _numbers(optim.replace(args=rest)), "optim")
    return optim.replace(args=rest), groups, reader.problems


def _numbers(optim: Component) -> dict[str, object]:
    """The arguments that are judged before anything is built: of torch's own optimizers, those that nothing makes."""
    if not optim.target.startswith("torch.optim."):
        return {}
    others = ("eps",) if optim.target.endswith(".Adafactor") else ()  # there it is a pair
    judged = [name for name in _TorchNumbers.__struct_fields__ if name not in others]
    return {name: value for name, value in optim.args.items() if name in judged and not isinstance(value, Mapping)}
