"""Which anchor is proposed, and which is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flodl.decide.proposal import Situation, propose
from flodl.decide.readings import Reading
from flodl.decide.verdict import NudgeDown, Stable
from tests.decide.minds import at_work, elche, plan, report


@pytest.mark.parametrize(
    ("anchor", "compute_ms", "sync_ms", "bounds", "expected"),
    [
        (10, 1000, 220, {}, 20),
        (10, 1000, 150, {}, 15),
        (10, 1000, 100, {}, None),
        (10, 1000, 101, {}, 11),
        (22, 2200, 100, {}, 21),
        (22, 2200, 120, {}, None),
        (10, 1000, 10, {"min_anchor": 10}, None),
        (150, 1000, 900, {"max_anchor": 200}, 200),
        (200, 1000, 900, {"max_anchor": 200}, None),
        (100, 1000, 104, {}, None),
        (100, 1000, 106, {}, 106),
    ],
)
def test_the_anchor_follows_the_overhead_with_hysteresis(
    anchor: int, compute_ms: float, sync_ms: float, bounds: dict[str, int], expected: int | None
):
    ms = compute_ms / anchor
    mind = at_work([ms, ms], anchor=anchor, overhead_target=0.1, **bounds)
    proposal = None
    for _ in range(3):  # the median of three rounds
        proposal = report(mind, [ms, ms], sync_ms=sync_ms, batches=anchor)
    assert (proposal.anchor if proposal else None) == expected
    reason = mind.commit(proposal, Stable())
    assert ("hold" if expected is None else f"-> {expected}") in reason
    assert mind.anchor == (anchor if expected is None else expected)


def test_one_slow_round_in_three_moves_nothing():
    mind = at_work([10, 10])
    assert report(mind, [10, 10], sync_ms=5 * 3.75) is None
    assert report(mind, [10, 10], sync_ms=3.75) is None
    assert report(mind, [10, 10], sync_ms=3.75) is None


def test_a_short_final_window_does_not_look_expensive():
    mind = at_work([10, 10], anchor=100)
    for _ in range(3):
        assert report(mind, [10, 10], sync_ms=37.5, batches=7) is None


def test_no_proposal_without_a_reading_of_the_anchor_rank():
    mind = at_work([10, 20])
    assert report(mind, [10, None], sync_ms=200) is None
    assert report(mind, [10, None], sync_ms=200) is None
    assert report(mind, [10, 20], sync_ms=200) is not None


def test_no_proposal_without_a_finite_compute():
    mind = at_work([10, 10])
    readings = {0: Reading(10, 100.0), 1: Reading(10, 100.0)}
    for compute in (0.0, math.inf, math.nan):
        assert mind.report(readings, sync_ms=200, compute_ms={0: compute, 1: compute}) is None


def test_a_growth_after_a_deep_nudge_may_exceed_the_doubling_up_to_the_lower_bound():
    mind = at_work([10, 10], anchor=40, min_anchor=40)
    mind.commit(None, NudgeDown(0.1))
    assert mind.anchor == 4
    for _ in range(5):
        report(mind, [10, 10], sync_ms=100)
        mind.commit(None, Stable())
    proposal = report(mind, [10, 10], sync_ms=100)
    assert proposal is not None
    assert proposal.anchor == 40


def test_an_anchor_of_1_grows_where_rounding_wastes_a_device():
    mind = at_work([10, 14], overhead=0.0, anchor=1, min_anchor=1)
    proposal = report(mind, [10, 14], sync_ms=0)
    assert proposal is not None
    assert (proposal.anchor, proposal.grows) == (2, True)
    assert "83.3%" in proposal.reason
    mind.commit(proposal, Stable())
    assert plan(mind) == [3, 2]


def test_growth_for_better_use_stays_within_an_epoch_and_within_bounds():
    now = Situation(anchor=1, overhead=0.03, target=0.05, low=1, high=1000, ms={0: 10.0, 1: 14.0}, slow_ms=14.0)
    grown, _ = propose(now)
    assert grown is not None
    narrow = Situation(anchor=1, overhead=0.03, target=0.05, low=1, high=1000, ms=now.ms, slow_ms=14.0, epoch_batches=4)
    low = Situation(anchor=1, overhead=0.03, target=0.05, low=1, high=1, ms=now.ms, slow_ms=14.0)
    assert propose(narrow)[0] is None
    assert propose(low)[0] is None


def test_lockstep_on_unequal_devices_is_not_grown_for_better_use():
    mind = at_work([10, 25], max_batch_diff=0)
    assert report(mind, [10, 25], sync_ms=10) is None


def test_the_best_of_the_better_anchors_is_taken():
    now = Situation(anchor=2, overhead=0.03, target=0.05, low=1, high=1000, ms={0: 10.0, 1: 12.4}, slow_ms=12.4)
    proposal, _ = propose(now)
    uses = {anchor: now.utilisation(anchor) for anchor in (2, 3, 4)}
    assert uses[2] < 0.90
    assert proposal is not None
    assert proposal.anchor == max((3, 4), key=lambda anchor: uses[anchor])


def test_a_shrink_stops_where_rounded_quotas_would_waste_a_device():
    now = Situation(anchor=2, overhead=0.0, target=0.05, low=1, high=1000, ms={0: 10.0, 1: 14.0}, slow_ms=14.0)
    proposal, reason = propose(now)
    assert proposal is None
    assert "83.3%" in reason


def test_a_shrink_goes_down_by_a_twentieth_and_by_one_at_least():
    equal = {0: 10.0, 1: 10.0}
    seen = []
    for anchor in (5, 39, 40, 100):
        proposal, _ = propose(
            Situation(anchor=anchor, overhead=0.0, target=0.05, low=1, high=1000, ms=equal, slow_ms=10.0)
        )
        assert proposal is not None
        assert not proposal.grows
        seen.append(proposal.anchor)
    assert seen == [4, 38, 38, 95]


def test_in_async_a_window_does_not_become_shorter_than_a_round():
    mind = at_work([10, 10], mode="cpu_async")
    for _ in range(3):
        assert report(mind, [10, 10], sync_ms=0.1, round_ms=95.0) is None
    assert "no shorter window is allowed" in mind.commit(None, Stable())
    for _ in range(3):
        proposal = report(mind, [10, 10], sync_ms=0.1, round_ms=85.0)
    assert proposal is not None
    assert proposal.anchor == 9


def test_a_round_that_no_window_told_of_changes_no_overhead():
    mind = at_work([10, 10], mode="cpu_async", overhead=0.04)
    for _ in range(3):
        assert report(mind, [10, 10], sync_ms=None) is None
    for sync_ms in (90.0, None, 90.0):
        proposal = report(mind, [10, 10], sync_ms=sync_ms)
    assert proposal is not None
    assert "overhead 90.0%" in proposal.reason


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        ({}, {0: 5, 1: 2}),  # a round of 40 ms lies within two batches of the slow rank
        ({"max_anchor": 11}, {0: 3, 1: 1}),  # the last window may not be longer than the longest
        ({"max_anchor": 10}, {}),
        ({"anchor_rank": 0}, {0: 4, 1: 2}),  # four batches of this one, which is not the slowest
        ({"max_batch_diff": 20}, {}),
        ({"mode": "cpu_cadence"}, {}),
        ({"mode": "cpu_sync"}, {}),
    ],
)
def test_how_much_of_an_epoch_is_a_window_of_its_own(knobs: dict[str, Any], wanted: dict[int, int]):
    mind = elche(2, **{"mode": "cpu_async", **knobs})
    assert set(mind.shortest_window.values()) <= {1}
    for _ in range(3):
        report(mind, [10, 25], round_ms=40.0)
        plan(mind)
    assert mind.shortest_window == wanted


def test_a_rest_is_no_longer_than_what_a_guard_allows():
    mind = at_work([10, 10], mode="cpu_async")
    report(mind, [10, 10], round_ms=95.0)
    report(mind, [10, 10], round_ms=95.0)
    mind.commit(None, NudgeDown(0.2))
    assert (mind.anchor, mind.shortest_window) == (2, {0: 2, 1: 2})


def test_in_cadence_the_length_of_a_round_bounds_nothing():
    mind = at_work([10, 10])
    for _ in range(3):
        proposal = report(mind, [10, 10], sync_ms=0.1, round_ms=95.0)
    assert proposal is not None
