"""A key that was typed and that the chosen configuration does not have: what was meant, or which choice has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from flodl.errors import Problem
from flodl.spec.job import JobSpec
from flodl.spec.keys import is_component_key, job_keys
from flodl.spec.reader import hints, struct_members
from flodl.spec.suggest import did_you_mean, nearest
from flodl.spec.value import Value
from flodl.tasks import TASKS

__all__ = ["unknown"]

_MAPS = re.compile(r"(cluster\.(workers\.\d+\.)?env|hydra)\..*")
_COMPONENTS = ("model", "dataset", "step", "optim", "scheduler")
_HABITS = {"epochs": "trainer.num_epochs", "lr": "optim.lr", "learning_rate": "optim.lr"}  # what people write


def unknown(key: str, value: str, *, groups: Iterable[str], block: Mapping[Any, Any], task: str) -> Problem:
    """What is wrong with an override of `key`. block: what the chosen configuration has where it was looked for.

    groups: names of the config groups. task: the one that was typed.
    """
    group, _, leaf = key.rpartition(".")
    beside = [str(name) for name in block if not str(name).startswith("_")]
    kinds = _kinds(group)
    if str(block.get("name")) in kinds:
        return _of_a_choice(key, value, str(block.get("name")), kinds)
    if key in job_keys() or is_component_key(key) or _MAPS.fullmatch(key):
        near = nearest(leaf, beside) if is_component_key(key) else None
        add = f"'++{key}={value}'"
        remedy = f"did you mean {group}.{near}? if not, {add} adds it" if near else f"to add it: {add}"
        constraint = "the chosen configuration does not mention this key"
        return Problem(key=key, value=value, constraint=constraint, remedy=remedy)
    remedy = _in_a_block(group, leaf, beside) if group and beside else _at_the_top(key, groups, block, task)
    return Problem(key=key, value=value, constraint="there is no such key", remedy=remedy)


def _kinds(group: str) -> dict[str, type[Value]]:
    """Choice -> its keys, where the choices of a group have different ones: a guard, an outer optimizer."""
    members = struct_members(hints(JobSpec)[group]) if group in hints(JobSpec) else ()
    return {str(kind.__struct_config__.tag): kind for kind in members} if len(members) > 1 else {}


def _of_a_choice(key: str, value: str, chosen: str, kinds: Mapping[str, type[Value]]) -> Problem:
    group, _, leaf = key.rpartition(".")
    own = list(hints(kinds[chosen]))
    owners = [f"{group}={name}" for name, kind in kinds.items() if leaf in hints(kind)]
    known = {name: f"{group}.{name}" for name in own}
    if leaf in own:
        remedy = f"to add it: '++{key}={value}'"
    elif owners:
        remedy = f"it belongs to {' and '.join(owners)}"
    elif near := nearest(leaf, known):
        remedy = f"did you mean {known[near]}?"
    else:
        remedy = f"its keys are {', '.join(own)}" if own else "it takes none"
    return Problem(key=key, value=value, constraint=f"{group}={chosen} has no such key", remedy=remedy)


def _in_a_block(group: str, leaf: str, beside: Iterable[str]) -> str:
    near = nearest(leaf, beside)
    if near is None and (elsewhere := _HABITS.get(leaf) or _same_leaf(leaf, {})):
        return f"did you mean {elsewhere}?"
    return f"did you mean {group}.{near}?" if near else did_you_mean(leaf, beside)


def _at_the_top(key: str, groups: Iterable[str], tree: Mapping[Any, Any], task: str) -> str:
    top, _, rest = key.partition(".")
    if rest and top not in groups and (near := nearest(top, groups)):
        return f"did you mean {near}.{rest}?"
    own = TASKS[task].arguments if task in TASKS else ()
    owners = [f"task={name}" for name, made in TASKS.items() if key in made.arguments]
    near = nearest(key, own, cutoff=0.7)
    if near is None and owners:
        return f"it is a word of {', '.join(owners)}"
    near = near or _HABITS.get(key) or nearest(key, [*groups, *job_keys()], cutoff=0.7) or _same_leaf(key, tree)
    return f"did you mean {near}?" if near else "python -m flodl --cfg job shows all keys"


def _same_leaf(key: str, tree: Mapping[Any, Any]) -> str | None:
    """num_epochs -> trainer.num_epochs: the right name without its group. tree: where chosen parts have their own."""
    by_leaf = {known.rpartition(".")[2]: known for known in reversed(job_keys())}
    for part in _COMPONENTS:
        by_leaf |= {str(name): f"{part}.{name}" for name in tree.get(part) or () if str(name) not in by_leaf}
    near = nearest(key.rpartition(".")[2], by_leaf, cutoff=0.8)
    return by_leaf[near] if near else None
