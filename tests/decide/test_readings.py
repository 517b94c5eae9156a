"""Readings and the trust window that smooths them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.margins import above, ceil_exact, half_up
from flodl.decide.readings import MedianOfThree, Reading, TrustWindow

durations = st.floats(min_value=1e-3, max_value=1e6)


def window_of(*values: float) -> TrustWindow:
    window = TrustWindow()
    for value in values:
        window.add(value)
    return window


def test_one_outlier_moves_the_mean_and_does_not_replace_it():
    assert window_of(10, 12, 11, 50, 10).mean == pytest.approx(18.6)


def test_five_readings_later_the_outlier_is_forgotten():
    assert window_of(10, 12, 11, 50, 10, 10, 10, 10, 10, 10).mean == 10.0


def test_nothing_is_known_before_the_first_reading():
    assert TrustWindow().mean is None


def test_four_misses_keep_the_mean_and_the_fifth_clears_it():
    window = window_of(10, 12)
    for _ in range(4):
        window.miss()
    assert window.mean == 11
    window.miss()
    assert window.mean is None


def test_a_reading_between_misses_starts_their_count_anew():
    window = window_of(10)
    for _ in range(4):
        window.miss()
    window.add(10)
    for _ in range(4):
        window.miss()
    assert window.mean == 10


def test_a_real_slowdown_is_seen_in_two_windows():
    assert window_of(10, 10, 10, 10, 10, 50, 50).mean == 50


def test_a_real_speedup_is_seen_in_two_windows():
    assert window_of(50, 50, 50, 50, 50, 10, 10).mean == 10


def test_two_outliers_on_different_sides_drop_nothing():
    assert window_of(10, 10, 10, 20, 5).mean == pytest.approx(11)


def test_exactly_25_percent_off_is_not_off():
    assert window_of(8, 10, 10.625).values == [8, 10, 10.625]
    window = window_of(10, 12.5)
    assert window.streak == 0


def test_a_drop_starts_a_new_streak():
    window = window_of(10, 10, 10, 20, 20)
    assert window.values == [20, 20]
    window.add(40)
    assert window.values == [20, 20, 40]
    window.add(40)
    assert window.values == [40, 40]


def test_a_miss_neither_feeds_nor_breaks_a_streak():
    window = window_of(10, 10, 10, 20)
    window.miss()
    window.add(20)
    assert window.mean == 20


def test_what_is_cleared_leaves_no_streak_behind():
    window = window_of(10, 10, 20)
    for _ in range(5):
        window.miss()
    window.add(10)
    window.add(10)
    assert window.values == [10, 10]


@given(st.lists(durations, min_size=1, max_size=40))
def test_the_mean_lies_within_the_last_five_readings(values: list[float]):
    window = window_of(*values)
    assert len(window.values) <= 5
    assert window.values == values[-len(window.values) :]
    assert window.mean is not None
    assert min(window.values) <= window.mean * (1 + 1e-12)
    assert window.mean <= max(window.values) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("batches", "wall_ms"), [(0, 10.0), (-1, 10.0), (4, 0.0), (4, -1.0), (4, math.inf), (4, math.nan), (4, 5e-324)]
)
def test_no_reading_without_batches_and_a_finite_time(batches: int, wall_ms: float):
    assert not Reading(batches, wall_ms).counts


def test_the_divisor_is_the_number_of_batches_really_run():
    assert Reading(4, 100.0).ms == 25.0


def test_the_median_of_three_ignores_one_slow_round():
    rounds = MedianOfThree()
    assert rounds.median == 0
    for ms in (10, 11, 50):
        rounds.add(ms)
    assert rounds.median == 11
    rounds.add(10)
    assert rounds.values == [11, 50, 10]


def test_the_median_of_two_is_the_lower_one():
    assert MedianOfThree([10, 50]).median == 10


@pytest.mark.parametrize("ms", [math.nan, math.inf, -1.0])
def test_the_median_leaves_out_what_is_no_duration(ms: float):
    rounds = MedianOfThree()
    rounds.add(ms)
    assert rounds.values == []


def test_comparisons_forgive_rounding_error_and_nothing_more():
    assert not above(0.1 + 0.2, 0.3)
    assert not above(0.3, 0.1 + 0.2)
    assert above(0.3001, 0.3)
    assert not above(0.0, 0.0)
    assert above(1e-12, 0.0)


def test_halves_round_upward_and_ceilings_forgive_rounding_error():
    assert [half_up(x) for x in (0.5, 1.5, 2.5, 3.49)] == [1, 2, 3, 3]
    assert ceil_exact(10 * 0.15 / 0.10) == 15
    assert ceil_exact(10.01) == 11
