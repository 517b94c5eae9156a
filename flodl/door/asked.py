"""What a program handed in, looked at before anything is made of it: kinds, and whether calls will fit.

All problems at once. What a key may be worth is the codec's question, and comes with the same ConfigError.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, cast

from flodl.door.config import EpochCallbackPolicy, TrainerConfig
from flodl.door.named import is_factory, takes_optimizer, words_of
from flodl.errors import ConfigError, Problem
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.cluster import ClusterSpec
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.guard import GuardConfig
from flodl.spec.job import EvalConfig, MembershipConfig
from flodl.spec.loader import LoaderConfig
from flodl.spec.outer import OuterConfig
from flodl.spec.stop import StopConfig

__all__ = ["call_problems", "kind_problems", "require_saved", "shown"]

_FILES = (str, os.PathLike)
_KINDS: dict[str, tuple[Any, str]] = {
    "elche": (ElCheConfig, "give ElCheConfig.cpu_async() or another of its presets"),
    "cluster": ((ClusterSpec, str), "give what ClusterBuilder()...build() makes, or the name of a cluster file"),
    "guard": (GuardConfig, "give a TrendGuardConfig, MsfGuardConfig or NoGuardConfig"),
    "membership": (MembershipConfig, "give a MembershipConfig"),
    "outer": (OuterConfig, "give an AverageConfig, SlowMoConfig or DiLoCoConfig"),
    "loader": (LoaderConfig, "give a LoaderConfig"),
    "eval": (EvalConfig, "give an EvalConfig; eval_fn is a function's place, eval_dataset that of data"),
    "stop": (StopConfig, "give a StopConfig"),
    "checkpoint": (CheckpointConfig, "give a CheckpointConfig; save_path is a folder's place"),
    "save_path": (_FILES, "give a folder's path"),
    "resume_from": (_FILES, "give a run folder's path"),
    "epoch_callback_policy": (EpochCallbackPolicy, "give EpochCallbackPolicy.fastest() or EpochCallbackPolicy.rank(0)"),
}
_PLAIN = ("batch_size", "num_epochs", "name", "seed", "deterministic", "max_grad_norm", "limit_batches", "accumulate",
          "micro_batch", "precision", "compile", "ema", "checkpoint_every", "meta")  # fmt: skip
_LISTS = ("overrides", "trusted_targets")


@dataclass(frozen=True)
class _Call:
    """How something is called. given: with what, in order. is_made: a class of it is made first, with nothing."""

    given: tuple[str, ...]
    makes: str
    is_made: bool = True


_CALLS = {
    "model": _Call((), "a class or function that makes the model, in every rank anew", is_made=False),
    "optim": _Call(("parameters",), "a class or function that makes the optimizer", is_made=False),
    "step": _Call(("model", "batch"), "a function that gives the batch's mean loss, or a class of such"),
    "loop": _Call(("ctx",), "a function that trains, called in every rank"),
    "scheduler": _Call(("optimizer",), "a class or function that makes the scheduler"),
    "callbacks.epoch_fn": _Call(("epoch", "model"), "a function"),
    "callbacks.eval_fn": _Call(("model",), "a function that gives a number, or a map of names to numbers"),
    "callbacks.checkpoint_fn": _Call(("round", "model"), "a function"),
    "metrics_fn": _Call(("metrics",), "a function of this program", is_made=False),
    "eval_result_fn": _Call(("epoch", "figures"), "a function of this program", is_made=False),
}


def kind_problems(config: TrainerConfig) -> Iterator[Problem]:
    """Fields that hold something of another kind; the key is the field's name."""
    for name, (kinds, remedy) in _KINDS.items():
        value = getattr(config, name)
        if value is not None and not isinstance(value, kinds):
            is_unbuilt = type(value).__name__ == "ClusterBuilder"
            yield Problem(key=name, value=shown(value), constraint=f"is {_a(value)}",
                          remedy="end it with .build()" if is_unbuilt else remedy)  # fmt: skip
        elif kinds is _FILES and value is not None and not os.fspath(value):
            yield Problem(key=name, constraint="is empty", remedy=f"leave it out, or {remedy}")
    for name in _PLAIN:
        value = getattr(config, name)
        if not isinstance(value, str | int | float | Real | list | tuple | dict | None):
            yield Problem(key=name, value=shown(value), constraint=f"is {_a(value)}, not plain data",
                          remedy="give a number, a text, True or False; a tensor's number is .item()")  # fmt: skip
    for name in _LISTS:
        yield from _list_problems(name, getattr(config, name))
    policy = config.epoch_callback_policy
    if isinstance(policy, EpochCallbackPolicy) and policy.value is None:
        yield Problem(
            key="epoch_callback_policy", constraint="names no rank", remedy="give EpochCallbackPolicy.rank(0)"
        )


def require_saved(run: object, trusted_targets: object) -> None:
    """What `flodl.load_model` was handed: a folder and names. Raises ConfigError."""
    problems = [*_list_problems("trusted_targets", trusted_targets)]
    if not isinstance(run, _FILES) or isinstance(os.fspath(run), bytes):
        of_a_run = "give its folder: run.folder" if hasattr(run, "folder") else 'give a run folder\'s path, or "last"'
        problems.insert(0, Problem(key="run", value=shown(run), constraint=f"is {_a(run)}", remedy=of_a_run))
    if problems:
        raise ConfigError(problems)


def call_problems(key: str, given: Any) -> Iterator[Problem]:
    """Why something cannot be called as it is going to be, or cannot be trained on; key: as in the tree."""
    if isinstance(given, str) and key not in ("metrics_fn", "eval_result_fn"):
        return  # a path or a choice's name: found out when it is looked up
    if isinstance(given, Component) or (isinstance(given, Mapping) and "_target_" in given):
        return
    reason, remedy = _data(given) if key.startswith("dataset") else _callable(key, _CALLS[key], given)
    if reason:
        yield Problem(key=key, value=shown(given), constraint=reason, remedy=remedy)


def shown(given: Any) -> str:
    """What was given, for people: short, whatever it is."""
    if isinstance(given, str | int | float | bool | None):
        return repr(given)
    return words_of(given) if callable(given) else f"an object of type {type(given).__name__}"


# ---------------------------------------------------------------------------------------------------------- parts


def _callable(key: str, call: _Call, given: Any) -> tuple[str, str]:
    """Why it cannot be called so, and what to do; "" where it can, or where nobody can tell before it is tried."""
    if given is None:
        return "is missing", f"give {call.makes}"
    if _is(given, "torch.nn", "Module") and key == "model":
        return "is a model, and each rank makes its own", "give what makes it: its class, or lambda: model"
    if _is(given, "torch.optim.lr_scheduler", "LRScheduler"):
        return "belongs to an optimizer of this program", "give what makes it: lambda optimizer: StepLR(optimizer, 100)"
    if not callable(given):
        return "cannot be called", f"give {call.makes}, called as ({', '.join(call.given)})"
    callee = given.func if isinstance(given, functools.partial) else given
    if inspect.isclass(callee) and call.is_made and not takes_optimizer(callee):
        return _misfit(given, ()), "its objects are made with nothing; functools.partial gives it arguments"
    if key == "scheduler" and not is_factory(given):
        return _misfit(given, ("progress",)), "an object takes progress, 0 to 1, and gives the rate's factor"
    return _misfit(given, call.given), f"give {call.makes}"


def _misfit(given: Any, names: tuple[str, ...]) -> str:
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):  # it has none of its own, or a partial's names are wrong: the rank's error tells
        return ""
    try:
        signature.bind(*names)
    except TypeError as error:
        return f"is called with ({', '.join(names)}): {error}"
    return ""


def _list_problems(name: str, value: Any) -> Iterator[Problem]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in cast("list[Any]", value)):
        yield Problem(key=name, value=shown(value), constraint="must be a list of texts",
                      remedy=f"write {name}=({value!r},)" if isinstance(value, str) else "")  # fmt: skip


def _data(given: Any) -> tuple[str, str]:
    """Why nothing can be dealt out of it, and what to do."""
    if is_factory(given):
        return _misfit(given, ()), "give a class or function that makes the data set; functools.partial gives arguments"
    if _is(given, "torch.utils.data", "DataLoader"):
        return "is a loader, and batches are made by the ranks", "give its data set: loader.dataset"
    is_stream = _is(given, "torch.utils.data", "IterableDataset")
    is_set = hasattr(given, "__len__") and hasattr(given, "__getitem__") and not isinstance(given, Mapping)
    if hasattr(given, "train") or (is_set and not is_stream):
        return "", ""
    return "is no map-style data set: it must have __len__ and __getitem__", (
        "samples are dealt out by number: index a stream's files, or store it once")  # fmt: skip


def _is(given: Any, module: str, name: str) -> bool:
    """Whether it is an object of a class that this program could only have with that module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(given, kind)


def _a(value: Any) -> str:
    """What kind of thing it is: a class is named itself."""
    name = f"the class {value.__name__}" if inspect.isclass(value) else type(value).__name__
    return name if inspect.isclass(value) else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
