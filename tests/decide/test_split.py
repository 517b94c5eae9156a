"""Sharing whole things out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.split import by_ratios, equal, final_window, is_final, largest_remainder, proportional

weights = st.lists(st.floats(0, 1e6) | st.integers(0, 10**6), min_size=1, max_size=16)
totals = st.integers(0, 10**12)


def test_an_equal_split_gives_the_remainder_to_the_lower_rank():
    assert equal(3, 1000) == (334, 333, 333)


@pytest.mark.parametrize(("ms", "total", "parts"), [([10, 25], 1000, (714, 286)), ([5, 7, 7.5], 999, (419, 300, 280))])
def test_a_proportional_split_follows_speed(ms: list[float], total: int, parts: tuple[int, ...]):
    assert proportional(ms, total) == parts


@pytest.mark.parametrize(("ratios", "total", "parts"), [([0.7, 0.3], 1001, (701, 300)), ([0, 0], 9, (5, 4))])
def test_a_split_by_ratios_needs_no_sum_of_one_and_zeros_are_equal(
    ratios: list[float], total: int, parts: tuple[int, ...]
):
    assert by_ratios(ratios, total) == parts
    assert by_ratios([ratio * 10 for ratio in ratios], total) == parts


@pytest.mark.parametrize(
    ("owed", "parts"),
    [
        (72, (49, 13, 10)),
        (106, (73, 18, 15)),
        (20, (14, 3, 3)),
        (5, (3, 1, 1)),
        (3, (2, 1, 0)),
        (1, (1, 0, 0)),
        (0, (0, 0, 0)),
    ],
)
def test_the_final_window_hands_out_all_that_is_owed(owed: int, parts: tuple[int, ...]):
    assert final_window([71, 18, 15], owed) == parts


def test_a_window_is_final_below_the_quotas_and_one_batch_per_rank():
    assert is_final([71, 18, 15], 106)
    assert not is_final([71, 18, 15], 107)


@given(weights, totals)
def test_every_split_sums_to_its_total(parts: list[float], total: int):
    split = largest_remainder(parts, total)
    assert sum(split) == total
    assert min(split) >= 0


@given(weights, st.integers(0, 10**6))
def test_no_part_is_off_by_a_whole(parts: list[float], total: int):
    whole = math.fsum(parts)
    for part, got in zip(parts, largest_remainder(parts, total), strict=True):
        if whole > 0:
            assert abs(got - part / whole * total) < 1 + 1e-6


@given(weights, st.integers(0, 10**6))
def test_a_weight_of_zero_gets_nothing_beside_others(parts: list[float], total: int):
    if any(parts):
        split = largest_remainder(parts, total)
        assert all(got == 0 for part, got in zip(parts, split, strict=True) if part == 0)


@given(st.integers(1, 64), totals)
def test_equal_parts_differ_by_one_at_most_and_fall_with_the_rank(num_ranks: int, total: int):
    parts = equal(num_ranks, total)
    assert parts[0] - parts[-1] <= 1
    assert list(parts) == sorted(parts, reverse=True)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=16), st.integers(0, 10**5))
def test_a_final_window_never_exceeds_a_quota_by_more_than_one_round_of_batches(quotas: list[int], owed: int):
    if is_final(quotas, owed):
        assert all(part <= 2 * quota for part, quota in zip(final_window(quotas, owed), quotas, strict=True))


@pytest.mark.parametrize("bad", [[], [-1.0, 2.0], [math.nan], [math.inf, 1.0]])
def test_weights_that_mean_nothing_are_refused(bad: list[float]):
    with pytest.raises(ValueError, match="weights"):
        largest_remainder(bad, 10)


@pytest.mark.parametrize("bad", [[0.0, 1.0], [-1.0]])
def test_a_speed_without_time_is_refused(bad: list[float]):
    with pytest.raises(ValueError, match="must be > 0"):
        proportional(bad, 10)
