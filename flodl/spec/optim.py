"""What an ``optim`` block holds beside the optimizer's own arguments: parameter groups, and the rate by world size."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from flodl.errors import Problem
from flodl.spec.component import Component
from flodl.spec.reader import Reader
from flodl.spec.value import Value

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


def read_groups(optim: Component) -> tuple[Component, OptimGroups, list[Problem]]:
    """The optimizer as it is called, the groups, and what is wrong with them."""
    own = {name: value for name, value in optim.args.items() if name in OptimGroups.__struct_fields__}
    reader = Reader()
    groups = reader.value(OptimGroups, own, "optim")
    rest = {name: value for name, value in optim.args.items() if name not in own}
    return optim.replace(args=rest), groups, reader.problems
