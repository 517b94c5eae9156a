"""How long it is until a time of day."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from flodl.probe.clock import seconds_until

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("at", "now", "hours"),
    [
        ("07:00", (2026, 1, 10, 6, 30), 0.5),
        ("7:00", (2026, 1, 10, 6, 30), 0.5),
        ("07:00", (2026, 1, 10, 7, 0), 24.0),
        ("07:00", (2026, 1, 10, 22, 0), 9.0),
        ("07:00:36", (2026, 1, 10, 6, 0), 1.01),
        ("07:00", (2026, 3, 28, 22, 0), 8.0),  # summer time begins in this night
        ("07:00", (2026, 10, 24, 22, 0), 10.0),  # and ends in this one
    ],
)
def test_it_is_the_next_one_and_summer_time_is_counted_in(at: str, now: tuple[int, ...], hours: float) -> None:
    assert seconds_until(at, datetime(*now, tzinfo=BERLIN)) == pytest.approx(hours * 3600)  # type: ignore[misc]


def test_without_a_moment_it_counts_from_this_one() -> None:
    assert 0.0 < seconds_until("07:00") <= 25 * 3600
