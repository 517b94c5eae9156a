"""What a field may hold, in words: error messages are derived from the types, so they cannot disagree with them."""

from __future__ import annotations

from typing import Any, cast

import msgspec.inspect as mi

__all__ = ["choices_of", "words"]

_NUMBERS = {mi.IntType: "a whole number", mi.FloatType: "a number"}
_PLAIN: dict[type[mi.Type], str] = {mi.StrType: "text", mi.BoolType: "true or false", mi.NoneType: "null"}
_BOUNDS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))


def words(hint: Any) -> str:
    """A type hint as text: ``int >= 1 | Literal["auto"] | None`` -> "a whole number >= 1, auto, or null"."""
    parts = _parts(mi.type_info(hint))
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f", or {parts[-1]}"


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that a hint's literals allow; () where it has none."""
    return tuple(str(v) for member in _members(mi.type_info(hint)) if isinstance(member, mi.LiteralType)
                 for v in member.values)  # fmt: skip


def _members(kind: mi.Type) -> tuple[mi.Type, ...]:
    return kind.types if isinstance(kind, mi.UnionType) else (kind,)


def _parts(kind: mi.Type) -> list[str]:
    parts: list[str] = []
    for member in sorted(_members(kind), key=lambda m: isinstance(m, mi.NoneType)):
        if isinstance(member, mi.LiteralType):
            parts.extend(str(value) for value in member.values)
        else:
            parts.append(_one(member))
    return parts


def _one(kind: mi.Type) -> str:
    if isinstance(kind, mi.Metadata):  # Meta(description=...) says it better than a pattern
        schema = cast("dict[str, object] | None", kind.extra_json_schema) or {}  # pyright: ignore[reportUnknownMemberType]
        return str(schema.get("description") or _one(kind.type))
    if isinstance(kind, mi.IntType | mi.FloatType):
        bounds = [f"{sign} {getattr(kind, name):g}" for name, sign in _BOUNDS if getattr(kind, name) is not None]
        return " ".join([_NUMBERS[type(kind)], " and ".join(bounds)]).strip()
    if isinstance(kind, mi.VarTupleType):
        return f"a list of {_plural(kind.item_type)}"
    if isinstance(kind, mi.DictType):
        return "a map of names to text"
    return _PLAIN.get(type(kind), "plain data")


def _plural(kind: mi.Type) -> str:
    text = _one(kind)
    return text.replace("a whole number", "whole numbers").replace("a number", "numbers").replace("text", "texts")
