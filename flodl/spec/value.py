"""What every spec value is: frozen, keyword-only, and unable to swallow a misspelt key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Self, cast

import msgspec
from msgspec import Meta

from flodl.errors import Problem

__all__ = ["Fraction", "NonNegative", "NonNegativeInt", "Positive", "PositiveInt", "Value", "unwritable"]

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]

INT_BITS = 63  # beyond that neither the wire nor PyTorch's counters can hold a whole number


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frozen value of the configuration (subclasses say kw_only=True: msgspec does not inherit it).

    Types hold what one field may be; `problems` what fields may be together.
    """

    def problems(self, key: str) -> Iterator[Problem]:
        """Contradictions between the fields of this value; ``key`` is its dotted place in the config tree."""
        yield from ()

    def replace(self, **changes: object) -> Self:
        """A copy with some fields changed. Fields are not checked again: the codec is the door for foreign data."""
        return msgspec.structs.replace(self, **changes)


def unwritable(tree: object) -> str:
    """Why plain data cannot be written to a file or sent to a rank; "" where it can."""
    if isinstance(tree, int) and abs(tree) >= 2**INT_BITS:
        return f"is too large: whole numbers stay below 2**{INT_BITS}"
    if isinstance(tree, str) and any("\ud800" <= letter <= "\udfff" for letter in tree):
        return "is not text: it holds bytes that are no UTF-8"
    parts: list[object] = []
    if isinstance(tree, Mapping):
        pairs = cast("Mapping[object, object]", tree)
        parts = [*pairs, *pairs.values()]
    elif isinstance(tree, list | tuple):
        parts = list(cast("list[object]", tree))
    return next((fault for part in parts if (fault := unwritable(part))), "")
