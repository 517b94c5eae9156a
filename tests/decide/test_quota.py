"""Quotas: target, dead zone, lead, cap, slack, and the use they make of the devices."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.quota import capped, settle, targets, utilisation, with_slack, within_lead

quota_tables = st.lists(st.integers(1, 2000), min_size=1, max_size=12).map(lambda q: dict(enumerate(q)))
speeds = st.lists(st.floats(1e-3, 1e4) | st.none(), min_size=1, max_size=12)


def quotas_of(anchor: int, *ms: float | None) -> list[int]:
    known = [value for value in ms if value is not None]
    return list(targets(anchor, dict(enumerate(ms)), max(known)).values())


@pytest.mark.parametrize(
    ("anchor", "ms", "quotas"),
    [
        (10, (10, 23), [23, 10]),
        (10, (10, 25), [25, 10]),
        (4, (3, 7, 7.2), [10, 4, 4]),
        (10, (0.01, 30), [640, 10]),
        (10, (None, 20), [10, 10]),
    ],
)
def test_quotas_keep_everybody_busy_as_long_as_the_slowest(
    anchor: int, ms: tuple[float | None, ...], quotas: list[int]
):
    assert quotas_of(anchor, *ms) == quotas


def test_without_a_known_pace_all_quotas_are_the_anchor():
    assert targets(10, {0: 5.0, 1: None}, None) == {0: 10, 1: 10}


def test_halves_are_rounded_upward_not_to_the_even_number():
    assert quotas_of(1, 10, 25) == [3, 1]


def test_a_difference_below_a_nanosecond_is_none():
    assert quotas_of(1000, 10.0, 10.0 + 9e-7) == [1000, 1000]


def test_a_rank_slower_than_the_pace_gets_one_batch_at_least():
    assert targets(1, {0: 10.0, 1: 100.0}, 10.0) == {0: 1, 1: 1}


def test_the_dead_zone_keeps_a_change_of_exactly_5_percent():
    assert settle(20, quotas_of(10, 9.524, 20)[0]) == 20


def test_the_dead_zone_lets_more_than_5_percent_through():
    assert settle(20, quotas_of(10, 9.09, 20)[0]) == 22


def test_without_an_old_quota_there_is_no_dead_zone():
    assert settle(None, 20) == 20


@pytest.mark.parametrize(
    ("quotas", "epoch", "plan"),
    [
        ([400, 100], 300, [240, 60]),
        ([150, 75, 50], 100, [55, 27, 18]),
        ([10, 10, 10], 2, [1, 1, 1]),
        ([10, 10, 10], 20, [6, 6, 8]),
        ([10, 10, 10], 30, [10, 10, 10]),
        ([100, 1, 1, 1], 10, [7, 1, 1, 1]),
    ],
)
def test_the_cap_scales_a_window_to_an_epoch(quotas: list[int], epoch: int, plan: list[int]):
    assert list(capped(dict(enumerate(quotas)), epoch).values()) == plan


def test_of_quotas_that_the_cap_makes_equal_the_one_that_was_largest_gets_the_remainder():
    assert capped({0: 4, 1: 40, 2: 3, 3: 2}, 5) == {0: 1, 1: 2, 2: 1, 3: 1}
    assert capped({0: 4, 1: 4, 2: 3, 3: 2}, 5) == {0: 1, 1: 2, 2: 1, 3: 1}


@given(quota_tables, st.integers(1, 5000))
def test_a_capped_window_fits_the_epoch_or_is_one_batch_each(quotas: dict[int, int], epoch: int):
    plan = capped(quotas, epoch)
    assert min(plan.values()) >= 1
    assert list(plan) == list(quotas)
    if sum(quotas.values()) <= epoch:
        assert plan == quotas
    elif epoch >= sum(quotas.values()) / min(quotas.values()):  # no quota has to be raised to 1
        assert sum(plan.values()) == epoch


def test_the_lead_is_bounded_before_anything_else():
    assert within_lead({0: 25, 1: 10, 2: 12}, 5) == {0: 15, 1: 10, 2: 12}
    assert within_lead({0: 25, 1: 10}, 0) == {0: 10, 1: 10}
    assert within_lead({0: 25, 1: 10}, None) == {0: 25, 1: 10}
    assert within_lead({}, 3) == {}


def test_slack_takes_whole_batches_and_leaves_one():
    ms = {0: 10.0, 1: 10.0, 2: None}
    assert with_slack({0: 25, 1: 25, 2: 25}, ms, {0: 31.0, 2: 31.0}) == {0: 21, 1: 25, 2: 25}
    assert with_slack({0: 25}, ms, {0: 30.0}) == {0: 22}
    assert with_slack({0: 25}, ms, {0: 1000.0}) == {0: 1}


@pytest.mark.parametrize("slack", [0.0, -5.0, math.nan, math.inf])
def test_slack_that_is_no_duration_takes_nothing(slack: float):
    assert with_slack({0: 25}, {0: 10.0}, {0: slack}) == {0: 25}


@pytest.mark.parametrize(
    ("quotas", "ms", "used"),
    [([1, 1], [10, 14], 0.833), ([3, 1], [10, 25], 0.952), ([2, 1], [10, 25], 0.857), ([25, 10], [10, 25], 1.0)],
)
def test_utilisation_is_batches_done_over_batches_possible(quotas: list[int], ms: list[float], used: float):
    assert utilisation(dict(enumerate(quotas)), dict(enumerate(ms))) == pytest.approx(used, abs=5e-4)


def test_utilisation_of_unknown_devices_is_whole():
    assert utilisation({0: 10}, {0: None}) == 1.0


@given(st.integers(1, 1000), speeds, st.none() | st.integers(0, 100), st.integers(1, 5000))
def test_quotas_are_at_least_1_through_every_step(
    anchor: int, ms: list[float | None], max_batch_diff: int | None, epoch: int
):
    table = dict(enumerate(ms))
    slow_ms = max((value for value in ms if value is not None), default=None)
    wanted = targets(anchor, table, slow_ms)
    led = within_lead(wanted, max_batch_diff)
    planned = with_slack(capped(led, epoch), table, dict.fromkeys(table, 50.0))
    for step in (wanted, led, planned):
        assert list(step) == list(table)
        assert min(step.values()) >= 1
    assert max(wanted.values()) <= 64 * anchor
    assert 0 < utilisation(wanted, table) <= 1 + 1e-9
