"""The optimizer: any of torch's, over parameter groups that the config names by kind or pattern."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.optim import Optimizer

from flodl.errors import ConfigError, Problem
from flodl.spec.optim import OptimGroups

__all__ = ["grouped", "made_optimizer", "without_decay"]


def made_optimizer(make: Callable[..., Any], model: nn.Module, groups: OptimGroups, num_ranks: int) -> Optimizer:
    """The optimizer over the model's trainable parameters; each group's "initial_lr" is its base rate, scaled.

    Raises ConfigError, and whatever the optimizer says about its own arguments.
    """
    optimizer = make(grouped(model, groups.no_decay))
    _check(optimizer, groups)
    _check_own(optimizer, model)
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * groups.factor(num_ranks)
        group["initial_lr"] = group["lr"]
    return optimizer


def grouped(model: nn.Module, no_decay: Sequence[str]) -> list[Any]:
    """The trainable parameters, in the model's order; where some get no weight decay: two groups of them."""
    exempt = without_decay(model, no_decay)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decayed = [p for name, p in named if name not in exempt]
    others = [p for name, p in named if name in exempt]
    if not others:
        return decayed
    spared = {"params": others, "weight_decay": 0.0}
    return [{"params": decayed}, spared] if decayed else [spared]


def without_decay(model: nn.Module, no_decay: Sequence[str]) -> set[str]:
    """Names of the trainable parameters that `no_decay` means. Raises ConfigError for a pattern that means none."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    normal = set(_normalising(model))
    found: set[str] = set()
    problems: list[Problem] = []
    for pattern in no_decay:
        if pattern == "bias":
            found.update(name for name in names if _is_bias(name))
        elif pattern == "norm":
            found.update(name for name in names if name in normal)
        else:
            meant = [name for name in names if fnmatchcase(name, pattern)]
            found.update(meant)
            if not meant:
                known = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                problems.append(Problem(key="optim.no_decay", value=pattern, constraint="no parameter is called so",
                                        remedy=f"bias, norm, or a pattern of {known}"))  # fmt: skip
    if problems:
        raise ConfigError(problems)
    return found


def _normalising(model: nn.Module) -> Iterator[str]:
    """Parameters of modules whose class is called a norm: torch's own, and those of people who write one."""
    for path, module in model.named_modules(remove_duplicate=False):
        if "norm" in type(module).__name__.lower():
            for name, _ in module.named_parameters(recurse=False):
                yield f"{path}.{name}" if path else name


def _is_bias(name: str) -> bool:
    last = name.rpartition(".")[2]  # bias; in_proj_bias (attention); bias_ih_l0 (recurrent layers)
    return last == "bias" or last.startswith("bias_") or last.endswith("_bias")


def _check(optimizer: object, groups: OptimGroups) -> None:
    kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    constraint = ""
    if not isinstance(optimizer, Optimizer):
        constraint = "is no torch.optim.Optimizer"
    elif groups.no_decay and "weight_decay" not in optimizer.defaults:
        raise ConfigError([Problem(key="optim.no_decay", value=str(list(groups.no_decay)),
                                   constraint=f"{kind} knows no weight_decay", remedy="leave it out")])  # fmt: skip
    elif _needs_closure(optimizer):
        constraint = "evaluates the loss by itself, several times a step: no step of one batch can be averaged so"
    if constraint:
        raise ConfigError([Problem(key="optim._target_", value=kind, constraint=constraint,
                                   remedy="choose a first-order optimizer, such as torch.optim.AdamW")])  # fmt: skip


def _check_own(optimizer: Optimizer, model: nn.Module) -> None:
    """Raises ConfigError for one that was made for another model's parameters: this one would not learn."""
    own = {id(p) for p in model.parameters()}
    strange = sum(id(p) not in own for group in optimizer.param_groups for p in group["params"])
    if strange:
        raise ConfigError([Problem(key="optim", value=type(optimizer).__qualname__,
                                   constraint=f"holds {strange} tensors that are no parameters of the model",
                                   remedy="make it of the parameters that are handed in")])  # fmt: skip


def _needs_closure(optimizer: Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
