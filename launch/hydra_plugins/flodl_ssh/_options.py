"""The launcher's keys as one checked value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flodl.errors import ConfigError, Problem

__all__ = ["Options", "checked"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """See conf/hydra/launcher/flodl_ssh.yaml."""

    on_failure: str
    retries: int
    skip_completed: bool
    max_parallel: int


def checked(given: Mapping[str, Any]) -> Options:
    """Raises ConfigError with every key that cannot be."""
    problems: list[Problem] = []

    def refuse(key: str, constraint: str) -> None:
        problems.append(Problem(key=f"hydra.launcher.{key}", value=str(given.get(key)), constraint=constraint))

    if given.get("on_failure") not in ("continue", "stop"):
        refuse("on_failure", "must be continue or stop")
    if not isinstance(given.get("skip_completed"), bool):
        refuse("skip_completed", "must be true or false")
    for key, least in (("retries", 0), ("max_parallel", 1)):
        value = given.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            refuse(key, f"must be a whole number >= {least}")
    for key in sorted(set(given) - set(Options.__dataclass_fields__)):
        refuse(key, "there is no such key")
    if problems:
        raise ConfigError(problems)
    return Options(**given)
