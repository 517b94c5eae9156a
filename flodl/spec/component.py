"""Components: the parts of a job that the config names by import path, in their Hydra form and as values.

The Hydra form is what people write and what spec.json holds: ``{_target_: torch.optim.SGD, _partial_: true, lr: 0.1}``.
Whether a target may be called at all is `flodl.spec.trust`'s question, not this one's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from flodl.errors import Problem
from flodl.spec.suggest import did_you_mean
from flodl.spec.tree import strings
from flodl.spec.value import Value, unwritable

__all__ = ["Component", "component", "component_tree"]

HELD = "flodl.engine.held."  # where a rank finds what its program holds
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_MARKS = {
    "_args_": "name the arguments instead: every argument of a component is a keyword",
    "_convert_": "leave it out: components always get plain lists and maps",
    "_recursive_": "leave it out: nested components are always built first",
}


class Component(Value, frozen=True, kw_only=True):
    """A thing that the config tree names by import path: model, data set, step, optimizer, schedule.

    target: dotted path of a class or function. args: its keyword arguments as plain data; nested components keep
    their Hydra form (``_target_``). partial: True where the callee is completed later (optimizers want parameters).
    """

    target: str
    args: dict[str, Any] = {}
    partial: bool = False

    @property
    def name(self) -> str:
        """For people: its path; of what lives in a program, what that said of it."""
        words = self.args.get("words") if self.target.startswith(HELD) else None
        return words if isinstance(words, str) and words else self.target

    @property
    def is_live(self) -> bool:
        """Whether it, or a part of it, lives in the program that asked for the run, and nowhere else."""
        return any(text.startswith(HELD) for _, text in strings({"_target_": self.target, **self.args}, ""))


def component(tree: object, key: str) -> tuple[Component | None, list[Problem]]:
    """Read the Hydra form. Returns the component (None where there is no target) and everything that is wrong."""
    if not isinstance(tree, Mapping):
        return None, [Problem(key=key, value=str(tree), constraint="must be a block with _target_ and arguments")]
    found = dict(cast("Mapping[object, object]", tree))
    target, partial = found.pop("_target_", None), found.pop("_partial_", False)
    problems: list[Problem] = []
    if not isinstance(target, str) or not _PATH.fullmatch(target):
        problems.append(Problem(key=f"{key}._target_", value="" if target is None else str(target),
                                constraint="must be the import path of a class or function",
                                remedy="for example torch.optim.SGD"))  # fmt: skip
    if not isinstance(partial, bool):
        problems.append(Problem(key=f"{key}._partial_", value=str(partial), constraint="must be true or false"))
    for name in [n for n in found if isinstance(n, str) and n.startswith("_") and n.endswith("_")]:
        remedy = _MARKS.get(name) or did_you_mean(name, ["_target_", "_partial_"])
        problems.append(Problem(key=f"{key}.{name}", constraint="is not accepted here", remedy=remedy))
        del found[name]
    problems.extend(_plain(found, key))
    if problems:
        return None, problems
    args = cast("dict[str, Any]", _lists(found))
    return Component(target=str(target), args=args, partial=bool(partial)), problems


def component_tree(made: Component) -> dict[str, Any]:
    """The Hydra form of a component; `component` reads it back to the same value."""
    head: dict[str, Any] = {"_target_": made.target}
    if made.partial:
        head["_partial_"] = True
    return head | made.args


def _lists(tree: object) -> object:
    """Plain data with every sequence as a list, so that a value equals what JSON gives back."""
    if isinstance(tree, Mapping):
        return {str(k): _lists(v) for k, v in cast("Mapping[object, object]", tree).items()}
    if isinstance(tree, list | tuple):
        return [_lists(item) for item in cast("list[object]", tree)]
    return tree


def _plain(tree: object, key: str) -> Iterator[Problem]:
    """What of an argument tree is not plain, finite data."""
    if isinstance(tree, Mapping):
        for name, item in cast("Mapping[object, object]", tree).items():
            if isinstance(name, str) and not unwritable(name):
                yield from _plain(item, f"{key}.{name}")
            else:
                yield Problem(key=f"{key}.{name!a}", constraint="the key must be text", remedy="put it in quotes")
    elif isinstance(tree, list | tuple):
        for i, item in enumerate(cast("list[object]", tree)):
            yield from _plain(item, f"{key}[{i}]")
    elif isinstance(tree, float) and not math.isfinite(tree):
        yield Problem(key=key, value=str(tree), constraint="must be a finite number")
    elif fault := unwritable(tree):
        yield Problem(key=key, value=ascii(tree), constraint=fault)
    elif not isinstance(tree, str | int | float | bool | None):
        yield Problem(key=key, value=str(tree), constraint=f"{type(tree).__name__} is not plain data",
                      remedy="use text, numbers, true/false, null, lists and maps")  # fmt: skip
