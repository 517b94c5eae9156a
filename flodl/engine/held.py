"""Live things of the program's (closures, data sets in memory), for ranks that were forked from it: by key.

A config names `made` (call it) and `given` (take it as it is); anywhere but in such a rank there is nothing to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flodl.errors import ConfigError, Problem

__all__ = ["given", "hold", "made"]

_held: dict[str, Any] = {}


def hold(things: Mapping[str, Any]) -> None:
    """Keep these, and nothing else: what is forked from now on finds them."""
    _held.clear()
    _held.update(things)


def made(*args: Any, key: str, words: str = "") -> Any:
    """What the factory of this key makes. Raises ConfigError where there is none."""
    return given(key=key, words=words)(*args)


def given(*, key: str, words: str = "") -> Any:
    """The thing of this key. words: what it is, for people. Raises ConfigError where it is not there."""
    if key not in _held:
        remedy = "run the program again (with resume_from to go on), or make it a top-level function of a file"
        constraint = "lived in the program that asked for that run"
        raise ConfigError([Problem(key=key.replace("/", "."), value=words, constraint=constraint, remedy=remedy)])
    return _held[key]
