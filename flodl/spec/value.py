"""What every spec value is: frozen, keyword-only, and unable to swallow a misspelt key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from flodl.errors import Problem

__all__ = ["Fraction", "NonNegative", "NonNegativeInt", "Positive", "PositiveInt", "Value"]

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


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
