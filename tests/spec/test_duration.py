"""Durations as people write them."""

from __future__ import annotations

import msgspec
import pytest

from flodl.spec.duration import Duration, TimeOfDay, seconds


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (90, 90),
        (1.5, 1.5),
        ("90s", 90),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d 12h", 129600),
        ("0.5h", 1800),
        ("2m5s", 125),
    ],
)
def test_a_duration_is_read_as_it_is_meant(said: float | str, meant: float) -> None:
    assert seconds(msgspec.convert(said, Duration)) == meant


@pytest.mark.parametrize("said", ["", "h", "90", "2x", "1.5.2h", "30m1h", "-5s", 0, -1, True, " 5s", "5s\nx"])
def test_what_is_no_duration_is_refused(said: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(said, Duration)


@pytest.mark.parametrize("said", ["7:00", "07:00", "23:59:59"])
def test_a_time_of_day_is_text(said: str) -> None:
    assert msgspec.convert(said, TimeOfDay) == said


@pytest.mark.parametrize("said", ["24:00", "7", "12:60", "noon", 420])
def test_what_is_no_time_of_day_is_refused(said: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(said, TimeOfDay)
