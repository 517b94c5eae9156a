"""Walks over plain config trees: mappings, lists and scalars. A place is a dotted key: ``model.layers[0].name``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

__all__ = ["mapped", "strings"]


def strings(node: object, key: str) -> Iterator[tuple[str, str]]:
    """Every string of the tree with its place, in order; names of mappings are not among them."""
    if isinstance(node, str):
        yield key, node
    for at, child in _children(node, key):
        yield from strings(child, at)


def mapped(node: Any, key: str, change: Callable[[str, str], Any]) -> Any:
    """A copy of the tree in which every string became change(place, string). Tuples become lists."""
    if isinstance(node, str):
        return change(key, node)
    if isinstance(node, Mapping):
        names = cast("Mapping[str, Any]", node)
        return {name: mapped(child, at, change) for name, (at, child) in zip(names, _children(names, key), strict=True)}
    if isinstance(node, (list, tuple)):
        return [mapped(child, at, change) for at, child in _children(cast("Sequence[Any]", node), key)]
    return node


def _children(node: object, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for name, child in cast("Mapping[str, Any]", node).items():
            yield f"{key}.{name}", child
    elif isinstance(node, (list, tuple)):
        for index, child in enumerate(cast("Sequence[Any]", node)):
            yield f"{key}[{index}]", child
