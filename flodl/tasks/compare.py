"""task=compare: finished runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ARGUMENTS", "perform"]

ARGUMENTS = ("runs", "by", "metric", "epoch", "target", "write", "json")


def perform(given: Mapping[str, Any]) -> None:
    """Compare and tell. Raises TaskFindings where no run ended well, ConfigError where something is not there."""
    from flodl.tasks.side_by_side import tell  # late: with it come tables and pages

    tell(given)
