"""Reads plain data into spec values and goes on after an error, so that all problems are told at once.

The types of the values are the schema; nothing is listed twice. Every problem names the dotted key, the value, what
may stand there, and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from flodl.errors import Problem
from flodl.spec.component import Component, component
from flodl.spec.describe import choices_of, words
from flodl.spec.environment import looks_secret
from flodl.spec.suggest import did_you_mean, nearest
from flodl.spec.value import Value, unwritable

__all__ = ["Reader", "hints", "item_kind", "shown", "struct_members"]

_ValueT = TypeVar("_ValueT", bound=Value)
_MISSING: Any = object()  # a value that could not be read: its problem is already in the list

# Keys that people write by habit, and what to do instead.
_HABITS = {
    "ranks": "ranks are counted in the order of the hosts: leave the key out",
    "epochs": "did you mean num_epochs?",
    "lr": "the learning rate belongs to the optimizer: optim.lr",
}


@cache
def hints(kind: type[Value]) -> dict[str, Any]:
    """Field name -> type hint of a value's class, bounds included."""
    return get_type_hints(kind, include_extras=True)


def shown(value: object, limit: int = 60) -> str:
    """A value as a person would write it in YAML, cut to `limit` characters."""
    text = _written(value) or "''"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _written(value: object) -> str:
    if isinstance(value, bool | None):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(item) for item in cast('Sequence[object]', value))}]"
    return str(value).encode("utf-8", "backslashreplace").decode()


class Reader:
    """One reading of one tree. `problems` fills up while values are read; `failed` are the keys that were not."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.failed: list[str] = []

    def value(self, kind: type[_ValueT], tree: object, key: str) -> _ValueT | Any:
        """Read a mapping as `kind`. Fields that cannot be read get their default (or a stand-in), so that the others
        are still judged; the value is of use only where no problem was found."""
        if not isinstance(tree, Mapping):
            return self._fail(key, tree, "must be a block of keys", "known here: " + ", ".join(hints(kind)))
        found = cast("Mapping[object, object]", tree)
        tag = kind.__struct_config__.tag_field
        self._unknown_keys(kind, [name for name in found if name != tag], key)
        read: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            place, hint = _join(key, field.name), hints(kind)[field.name]
            if field.name in found:
                got = self._any(hint, found[field.name], place)
            elif field.required:
                got = self._fail(place, _MISSING, "is missing")
            else:
                continue
            if got is _MISSING and field.required:
                got = _stand_in(hint)
            if got is not _MISSING:
                read[field.name] = got
        made = kind(**read)
        self.extend(made.problems(key))
        return made

    def extend(self, found: Iterator[Problem]) -> None:
        """Add contradictions, except those about a key that could not be read (its default would be judged)."""
        for problem in found:
            if not any(_overlap(problem.key, key) for key in self.failed):
                self.problems.append(problem)

    def _any(self, hint: Any, tree: object, key: str) -> Any:
        kinds = struct_members(hint)
        if len(kinds) > 1:
            return self._tagged(kinds, tree, key)
        if kinds and kinds[0] is Component and not (tree is None and NoneType in get_args(hint)):
            return self._component(tree, key)
        if _is_named_components(hint):
            return self._named_components(tree, key)
        if kinds and not (tree is None and NoneType in get_args(hint)):
            return self.value(kinds[0], tree, key)
        item = item_kind(hint)
        if item is not None:
            return self._list(item, tree, key)
        return self._leaf(hint, tree, key)

    def _component(self, tree: object, key: str) -> Any:
        made, problems = component(tree, key)
        self.problems.extend(problems)
        if problems:
            self.failed.append(key)
        return made if made is not None else _MISSING

    def _named_components(self, tree: object, key: str) -> Any:
        if not isinstance(tree, Mapping):
            return self._fail(key, tree, "must be a block of names, each with a _target_")
        found = {str(name): item for name, item in cast("Mapping[object, object]", tree).items()}
        read = {name: self._component(item, _join(key, name)) for name, item in found.items()}
        return _MISSING if any(item is _MISSING for item in read.values()) else read

    def _list(self, kind: type[Value], tree: object, key: str) -> Any:
        if isinstance(tree, str) or not isinstance(tree, Sequence):
            return self._fail(key, tree, "must be a list")
        read = [self.value(kind, item, f"{key}[{i}]") for i, item in enumerate(cast("Sequence[object]", tree))]
        return _MISSING if any(item is _MISSING for item in read) else tuple(read)

    def _tagged(self, kinds: tuple[type[Value], ...], tree: object, key: str) -> Any:
        by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
        field = str(kinds[0].__struct_config__.tag_field)
        if not isinstance(tree, Mapping):
            return self._fail(key, tree, "must be a block of keys")
        found = cast("Mapping[object, object]", tree)
        name = found.get(field, _MISSING)
        if not isinstance(name, str) or name not in by_tag:
            return self._fail(_join(key, field), name, "must be one of " + ", ".join(by_tag),
                              "" if name is _MISSING else did_you_mean(shown(name), by_tag))  # fmt: skip
        return self.value(by_tag[name], found, key)

    def _leaf(self, hint: Any, tree: object, key: str) -> Any:
        if get_origin(hint) is dict and isinstance(tree, Mapping):
            return self._texts(cast("Mapping[object, object]", tree), key)
        numbers = cast("Sequence[object]", tree) if isinstance(tree, list | tuple) else (tree,)
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            return self._fail(key, cast("object", tree), f"must be {words(hint)}, and finite")
        if fault := unwritable(cast("object", tree)):
            return self._fail(key, cast("object", tree), fault)
        try:
            return msgspec.convert(tree, hint)
        except msgspec.ValidationError:
            found = cast("object", tree)
            return self._fail(key, found, f"must be {words(hint)}", _leaf_remedy(hint, found))

    def _texts(self, tree: Mapping[object, object], key: str) -> Any:
        """Names and texts. A number is none: 0.50, 007 and yes would not arrive as they were written."""
        for name, value in tree.items():
            place = _join(key, shown(name))
            if not isinstance(name, str):
                self._fail(place, _MISSING, "its name must be text", "put it in quotes")
            elif not isinstance(value, str) and looks_secret(name):  # the value is not shown: it may be one
                self._fail(place, _MISSING, "must be text, and looks like a secret", f"cluster.env_pass=[{name}]")
            elif isinstance(value, bool | int | float):
                self._fail(place, value, "must be text", f'put it in quotes: {name}: "{shown(value)}"')
            elif not isinstance(value, str):
                self._fail(place, value, "must be text", "leave it out, or give it one")
            elif fault := unwritable([name, value]):
                self._fail(place, value, fault)
        return _MISSING if any(_overlap(key, failed) for failed in self.failed) else dict(tree)

    def _unknown_keys(self, kind: type[Value], names: Sequence[object], key: str) -> None:
        known = hints(kind)
        for name in names:
            if name not in known:
                text = shown(name)
                remedy = _HABITS.get(text) if nearest(text, known) is None else None
                self._fail(_join(key, text), _MISSING, "there is no such key", remedy or did_you_mean(text, known))

    def _fail(self, key: str, value: object, constraint: str, remedy: str = "") -> Any:
        text = "" if value is _MISSING else shown(value)
        self.problems.append(Problem(key=key, value=text, constraint=constraint, remedy=remedy))
        self.failed.append(key)
        return _MISSING


def _stand_in(hint: Any) -> Any:
    """Something in place of a required value that could not be read, so that its neighbours are still judged."""
    kinds = struct_members(hint)
    if kinds:
        required = [field for field in msgspec.structs.fields(kinds[0]) if field.required]
        return kinds[0](**{field.name: _stand_in(hints(kinds[0])[field.name]) for field in required})
    return () if get_origin(hint) is tuple else "?"


def _leaf_remedy(hint: Any, tree: object) -> str:
    if isinstance(tree, str):
        near = nearest(tree, choices_of(hint))
        return f"did you mean {near}?" if near else ""
    if isinstance(tree, int | float) and "text" in words(hint):
        return "put it in quotes"
    return ""


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


@cache
def struct_members(hint: Any) -> tuple[type[Value], ...]:
    """The spec values that a hint allows, `Value | None` included."""
    return tuple(m for m in _members(hint) if isinstance(m, type) and issubclass(m, Value))


def item_kind(hint: Any) -> type[Value] | None:
    """The spec value that a hint lists (``tuple[HostSpec, ...]``); None for any other hint."""
    args = get_args(hint)
    return args[0] if get_origin(hint) is tuple and isinstance(args[0], type) and issubclass(args[0], Value) else None


def _is_named_components(hint: Any) -> bool:
    return get_origin(hint) is dict and get_args(hint)[1] is Component


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _overlap(a: str, b: str) -> bool:
    """True where one dotted key lies within the other."""
    short, long = sorted((a, b), key=len)
    return long == short or long.startswith((f"{short}.", f"{short}["))
