"""Python values as JSON and back, exactly: tensors leave it by name, tuples stay tuples, infinity stays infinite.

No pickle. What is written::

    null, true, 3, 0.5, "text", [..]   themselves
    {"tensor": name}                   a tensor, kept elsewhere under that name
    {"tuple": [..]}  {"map": {..}}     a tuple; a dict with text keys
    {"float": "nan" | "inf" | "-inf"}  what JSON does not have
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from flodl.errors import FlodlError

__all__ = ["from_plain", "to_plain"]


def to_plain(value: object, place: str, put: Callable[[str, Tensor], None]) -> Any:
    """The value as JSON. place: where it stands, the name of a tensor there. put: told each tensor with its name.

    Raises FlodlError for what is neither a tensor nor plain.
    """
    match value:
        case Tensor():
            put(place, value)
            return {"tensor": place}
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case list():
            return [to_plain(item, f"{place}/{i}", put) for i, item in enumerate(value)]
        case tuple():
            return {"tuple": [to_plain(item, f"{place}/{i}", put) for i, item in enumerate(value)]}
        case dict() if all(isinstance(key, str) for key in value):
            return {"map": {key: to_plain(item, f"{place}/{key}", put) for key, item in value.items()}}
    raise FlodlError(f"{place}: a {type(value).__qualname__} can only be stored with pickle, which is never done")


def from_plain(tree: Any, get: Callable[[str], Tensor]) -> Any:
    """The inverse of `to_plain`. get: gives the tensor of a name. Raises FlodlError for another form."""
    if isinstance(tree, list):
        return [from_plain(item, get) for item in tree]
    if not isinstance(tree, Mapping):
        return tree
    match dict(tree):
        case {"tensor": str(name), **others} if not others:
            return get(name)
        case {"tuple": list(items), **others} if not others:
            return tuple(from_plain(item, get) for item in items)
        case {"map": dict(items), **others} if not others:
            return {key: from_plain(item, get) for key, item in items.items()}
        case {"float": "nan" | "inf" | "-inf" as text, **others} if not others:
            return float(text)
    raise FlodlError(f"a bundle's plain state holds {str(dict(tree))[:60]}, which this flodl does not know")
