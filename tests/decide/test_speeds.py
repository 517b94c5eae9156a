"""Who sets the pace, and who is fastest."""

from __future__ import annotations

import math

import pytest

from flodl.decide.readings import Reading
from flodl.decide.verdict import Stable
from tests.decide.minds import at_work, cycle, elche, plan, report


def test_the_slowest_rank_sets_the_pace_and_the_lower_of_equals():
    mind = elche(3)
    cycle(mind, [10, 30, 30])
    assert mind.anchor_rank == 1


def test_the_anchor_rank_is_sticky_in_warmup():
    mind = elche()
    for ms in ([10, 11], [30, 11], [30, 11], [30, 11]):
        cycle(mind, ms)
    assert mind.anchor_rank == 1


def test_the_anchor_rank_moves_from_stable_on_by_more_than_10_percent():
    mind = at_work([10, 10])
    assert mind.anchor_rank == 0
    for _ in range(5):
        cycle(mind, [10, 11], sync_ms=3.75)
    assert mind.smoothed_ms(1) == pytest.approx(11)
    assert mind.anchor_rank == 0
    for _ in range(5):
        cycle(mind, [10, 11.01], sync_ms=3.75)
    assert mind.anchor_rank == 1
    assert plan(mind)[1] == mind.anchor


def test_a_new_anchor_rank_is_told():
    mind = elche()
    report(mind, [10, 20])
    assert "rank 1 is the anchor rank: slowest known, 20 ms" in mind.commit(None, Stable())


def test_a_pinned_rank_sets_the_pace_though_it_is_not_the_slowest():
    mind = elche(anchor_rank=0)
    assert cycle(mind, [10, 20]) == [10, 5]
    for _ in range(10):
        cycle(mind, [10, 20])
    assert mind.anchor_rank == 0


def test_a_silent_pinned_rank_does_not_freeze_warmup_for_ever():
    mind = elche(anchor_rank=0)
    for _ in range(4):
        assert cycle(mind, [None, 20]) == [10, 10]
    assert (mind.calibrations, mind.anchor_rank) == (0, 0)
    cycle(mind, [None, 20])
    assert (mind.calibrations, mind.anchor_rank) == (1, 1)


def test_a_pinned_rank_that_speaks_again_is_the_anchor_rank_again():
    mind = elche(anchor_rank=0)
    for _ in range(5):
        cycle(mind, [None, 20])
    report(mind, [10, 20])
    assert mind.anchor_rank == 0
    assert "configured" in mind.commit(None, Stable())


def test_an_elected_rank_that_falls_silent_is_replaced_when_its_value_is_gone():
    mind = elche(3)
    cycle(mind, [10, 20, 40])
    for _ in range(4):
        cycle(mind, [10, 20, None])
    assert (mind.anchor_rank, mind.calibrations) == (2, 1)
    assert cycle(mind, [10, 20, None]) == [20, 10, 10]
    assert (mind.anchor_rank, mind.calibrations) == (1, 2)


def test_when_all_are_silent_nobody_is_elected():
    mind = elche()
    cycle(mind, [10, 20])
    for _ in range(6):
        quotas = cycle(mind, [None, None])
    assert (mind.anchor_rank, mind.calibrations) == (1, 1)
    assert quotas == [10, 10]
    assert mind.fastest() is None


def test_a_pinned_rank_that_does_not_exist_has_no_effect():
    mind = elche(anchor_rank=7)
    assert mind.anchor_rank is None
    assert cycle(mind, [10, 20]) == [20, 10]


def test_the_fastest_rank_is_known_after_the_first_calibration():
    mind = elche(3)
    assert mind.fastest() is None
    cycle(mind, [30, 10, 10])
    assert mind.fastest() == 1


def test_a_reading_that_does_not_count_is_a_miss():
    mind = elche()
    mind.report({0: Reading(0, 10.0), 1: Reading(4, math.nan), 9: Reading(4, 40.0)}, sync_ms=1.0, compute_ms={})
    assert (mind.calibrations, mind.smoothed_ms(0), mind.smoothed_ms(1), mind.smoothed_ms(9)) == (0, None, None, None)
