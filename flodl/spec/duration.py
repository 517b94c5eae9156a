"""Durations and times of day as people write them. They stay text in the job: spec.json holds what was asked."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from flodl.spec.value import Positive

__all__ = ["Duration", "TimeOfDay", "seconds"]

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"\d+(?:\.\d+)?"
_PART = re.compile(rf"({_NUMBER})([dhms])")

Duration = (
    Positive
    | Annotated[
        str,
        Meta(
            pattern=rf"^(?=\d)({_NUMBER}d)? ?({_NUMBER}h)? ?({_NUMBER}m)? ?({_NUMBER}s)?$",
            description="a duration such as 90s, 2h or 1h30m (a bare number counts seconds)",
        ),
    ]
)
TimeOfDay = Annotated[
    str,
    Meta(pattern=r"^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?$", description='a time of day in quotes, such as "07:00"'),
]


def seconds(duration: float | str) -> float:
    """A `Duration` in seconds: 90, "90s", "1h30m", "1d 12h"."""
    if not isinstance(duration, str):
        return float(duration)
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(duration))
