"""ElChe: phases, the anchor rank, proposals, verdicts, the window's plan, membership and memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.elche import ElChe
from flodl.decide.phase import Phase
from flodl.decide.proposal import Proposal, Situation, propose
from flodl.decide.readings import Reading
from flodl.decide.verdict import Nudge, NudgeDown, Stable, SuppressGrowth, Verdict
from flodl.spec.elche import ElCheConfig, Mode

EPOCH = 100_000
CADENCE_MODES: tuple[Mode, ...] = ("cpu_cadence", "nccl_cadence", "cpu_async")
SYNC_MODES: tuple[Mode, ...] = ("cpu_sync", "nccl_sync")


def elche(num_ranks: int = 2, **knobs: Any) -> ElChe:
    return ElChe(ElCheConfig(**{"mode": "cpu_cadence", **knobs}), tuple(range(num_ranks)))


def report(
    mind: ElChe, ms: Sequence[float | None], *, sync_ms: float = 0.0, batches: int = 10, round_ms: float = 0.0
) -> Proposal | None:
    """One accepted round in which rank r ran `batches` batches of ms[r] each (None: nothing usable)."""
    readings = {rank: Reading(batches, batches * value) for rank, value in enumerate(ms) if value is not None}
    compute = {rank: reading.wall_ms for rank, reading in readings.items()}
    return mind.report(readings, sync_ms=sync_ms, compute_ms=compute, round_ms=round_ms)


def cycle(mind: ElChe, ms: Sequence[float | None], verdict: Verdict | None = None, **told: Any) -> list[int]:
    """report, commit, quotas: the next window's plan."""
    proposal = report(mind, ms, **told)
    mind.commit(proposal, verdict or Stable())
    return plan(mind)


def plan(mind: ElChe, epoch: int = EPOCH, slack_ms: Mapping[int, float] | None = None) -> list[int]:
    return list(mind.quotas(epoch, slack_ms).by_rank.values())


def at_work(ms: Sequence[float | None] = (10.0, 10.0), *, overhead: float | None = None, **knobs: Any) -> ElChe:
    """A mind that is Stable and has held its anchor so far. overhead: sync / compute in all its rounds."""
    mind = elche(len(ms), **knobs)
    plan(mind)
    slowest = max(value for value in ms if value is not None)
    target = 0.75 * float(knobs.get("overhead_target", 0.05)) if overhead is None else overhead
    for _ in range(5):
        proposal = report(mind, ms, sync_ms=target * mind.anchor * slowest)
        assert proposal is None
        mind.commit(None, Stable())
        plan(mind)
    assert mind.phase is Phase.STABLE
    return mind


# ------------------------------------------------------------------------------------------------------- phases


@pytest.mark.parametrize(
    ("reports", "phase"),
    [
        (0, Phase.PROBE),
        (1, Phase.WARMUP),
        (4, Phase.WARMUP),
        (5, Phase.STABLE),
        (19, Phase.STABLE),
        (20, Phase.MATURE),
        (40, Phase.MATURE),
    ],
)
def test_the_phase_is_told_by_the_calibrations(reports: int, phase: Phase):
    mind = elche()
    for _ in range(reports):
        cycle(mind, [10, 20])
    assert mind.phase is phase
    assert mind.calibrations == reports


def test_a_cycle_uses_the_phase_at_its_start():
    mind = elche()
    seen = []
    for _ in range(6):
        report(mind, [10, 20])
        seen.append((mind.cycle_phase.label, mind.phase.label))
        mind.commit(None, Stable())
    assert seen == [("probe", "warmup"), *[("warmup", "warmup")] * 3, ("warmup", "stable"), ("stable", "stable")]


def test_behaviour_gated_on_stable_first_shows_on_report_6():
    mind = elche(overhead_target=0.1)
    plan(mind)
    proposed = [report(mind, [10, 10], sync_ms=50) is not None for _ in range(6)]
    assert proposed == [False, False, False, False, False, True]


def test_no_calibration_without_a_reading_of_the_anchor_rank():
    mind = elche()
    cycle(mind, [10, 20])
    cycle(mind, [10, None])
    assert mind.calibrations == 1


def test_the_first_noisy_reading_does_not_move_the_anchor():
    mind = elche()
    plan(mind)
    assert cycle(mind, [100, 230], sync_ms=5000) == [23, 10]
    assert mind.anchor == 10


# ------------------------------------------------------------------------------------------------------- quotas


@pytest.mark.parametrize(
    ("anchor", "ms", "quotas"),
    [
        (10, [10, 23], [23, 10]),
        (10, [10, 25], [25, 10]),
        (4, [3, 7, 7.2], [10, 4, 4]),
        (10, [0.01, 30], [640, 10]),
        (10, [None, 20], [10, 10]),
    ],
)
def test_the_report_that_brings_the_first_calibration_plans_adapted_quotas(
    anchor: int, ms: list[float | None], quotas: list[int]
):
    mind = elche(len(ms), anchor=anchor)
    assert plan(mind) == [anchor] * len(ms)
    assert cycle(mind, ms) == quotas


def test_windows_planned_before_any_calibration_are_equal():
    planned = elche(3).quotas(EPOCH)
    assert planned.by_rank == {0: 10, 1: 10, 2: 10}
    assert "equal quotas" in planned.reason


def test_a_quota_that_would_change_by_exactly_5_percent_stays():
    mind = elche()
    assert cycle(mind, [10, 20]) == [20, 10]
    assert cycle(mind, [2 * 9.524 - 10, 20]) == [20, 10]
    assert mind.smoothed_ms(0) == pytest.approx(9.524)


def test_a_quota_that_would_change_by_more_follows():
    mind = elche()
    assert cycle(mind, [10, 20]) == [20, 10]
    assert cycle(mind, [2 * 9.09 - 10, 20]) == [22, 10]


def test_equal_cards_do_not_drift_apart_by_noise():
    mind = elche(3, anchor=100)
    plan(mind)
    for noise in ([10.0, 10.2, 9.9], [10.1, 9.8, 10.2], [9.9, 10.1, 10.0]):
        assert cycle(mind, noise) == [100, 100, 100]


def test_planning_twice_gives_the_same_plan():
    mind = elche(3)
    cycle(mind, [10, 17, 31])
    assert plan(mind) == plan(mind)


def test_quotas_are_not_inverted_by_planned_counts():
    mind = elche()
    plan(mind)
    # Both were planned 10; the slow one got through 2 in the time.
    readings = {0: Reading(10, 100.0), 1: Reading(2, 100.0)}
    mind.report(readings, sync_ms=1.0, compute_ms={0: 100.0, 1: 100.0})
    mind.commit(None, Stable())
    assert plan(mind) == [50, 10]


def test_a_changed_anchor_recomputes_all_quotas_without_dead_zone():
    mind = elche(anchor=100)
    plan(mind)
    assert cycle(mind, [10, 10.4]) == [100, 100]
    mind.commit(None, Stable(), nudge=Nudge(0.5))
    assert plan(mind) == [52, 50]


@pytest.mark.parametrize(
    ("anchor", "ms", "cap", "quotas", "after"),
    [
        (100, [10, 40], 300, [240, 60], 60),
        (50, [10, 20, 30], 100, [55, 27, 18], 18),
        (10, [10, 10, 10], 2, [1, 1, 1], 1),
        (10, [10, 10, 10], 20, [6, 6, 8], 6),
    ],
)
def test_a_window_larger_than_an_epoch_is_capped_and_takes_the_anchor_along(
    anchor: int, ms: list[float], cap: int, quotas: list[int], after: int
):
    mind = elche(len(ms), anchor=anchor)
    report(mind, ms)
    mind.commit(None, Stable())
    planned = mind.quotas(cap)
    assert list(planned.by_rank.values()) == quotas
    assert planned.cap_binding
    assert f"capped to the {cap} batches" in planned.reason
    assert mind.anchor == after


def test_a_cap_before_any_reading_leaves_the_smallest_quota_as_anchor():
    mind = elche(3)
    assert plan(mind, 20) == [6, 6, 8]
    assert mind.anchor == 6


def test_the_anchor_does_not_ratchet_up_while_the_cap_binds():
    mind = elche(anchor=100, overhead_target=0.05)
    anchors, proposals = [], []
    for _ in range(12):
        proposal = report(mind, [10, 40], sync_ms=10_000)
        proposals.append(proposal)
        mind.commit(proposal, Stable())
        planned = mind.quotas(300)
        anchors.append(mind.anchor)
        assert sum(planned.by_rank.values()) <= 300
        assert planned.cap_binding
    assert anchors == [60] * 12
    assert proposals == [None] * 12


def test_a_cap_that_has_become_wide_binds_no_longer():
    mind = elche(anchor=100)
    report(mind, [10, 40])
    assert mind.quotas(300).cap_binding
    assert mind.quotas(300).cap_binding
    assert not mind.quotas(310).cap_binding


def test_the_anchor_comes_down_from_a_cap_when_averaging_is_cheap():
    mind = elche(anchor=100)
    for _ in range(7):
        proposal = report(mind, [10, 40], sync_ms=1)
        mind.commit(proposal, Stable())
        mind.quotas(300)
    assert mind.anchor < 60


def test_max_batch_diff_bounds_the_lead_over_the_smallest_quota():
    mind = elche(3, max_batch_diff=4)
    assert cycle(mind, [5, 10, 12]) == [14, 12, 10]


@pytest.mark.parametrize("mode", [*CADENCE_MODES, *SYNC_MODES])
def test_max_batch_diff_0_is_lockstep(mode: Mode):
    mind = elche(3, mode=mode, max_batch_diff=0)
    assert len(set(cycle(mind, [5, 10, 12]))) == 1


def test_slack_is_taken_once_and_is_not_lost():
    mind = elche()
    cycle(mind, [10, 25])
    assert plan(mind, slack_ms={0: 31.0}) == [21, 10]
    assert plan(mind, slack_ms={0: 31.0}) == [21, 10]
    assert plan(mind) == [25, 10]
    assert "rank 0 4 less for its callbacks" in mind.quotas(EPOCH, {0: 31.0}).reason


def test_slack_of_the_anchor_rank_does_not_lower_the_anchor():
    mind = elche()
    cycle(mind, [10, 25])
    assert plan(mind, slack_ms={1: 1000.0}) == [25, 1]
    assert mind.anchor == 10


def test_slack_comes_after_the_lead_and_after_the_cap():
    mind = elche(max_batch_diff=5)
    cycle(mind, [10, 25])
    assert plan(mind, slack_ms={1: 50.0}) == [15, 8]
    mind = elche(anchor=100)
    cycle(mind, [10, 40])
    assert plan(mind, 300, {0: 100.0}) == [230, 60]


# --------------------------------------------------------------------------------------------------- anchor rank


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


# ----------------------------------------------------------------------------------------------------- proposals


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


def test_in_cadence_the_length_of_a_round_bounds_nothing():
    mind = at_work([10, 10])
    for _ in range(3):
        proposal = report(mind, [10, 10], sync_ms=0.1, round_ms=95.0)
    assert proposal is not None


# ------------------------------------------------------------------------------------------------------- verdicts


def with_growth_to_20() -> tuple[ElChe, Proposal]:
    mind = at_work([100, 100], overhead_target=0.1)
    proposal = None
    for _ in range(2):
        proposal = report(mind, [100, 100], sync_ms=220)
    assert proposal is not None
    assert (mind.anchor, proposal.anchor) == (10, 20)
    return mind, proposal


def test_stable_commits_the_growth():
    mind, proposal = with_growth_to_20()
    mind.commit(proposal, Stable())
    assert mind.anchor == 20


def test_suppressed_growth_is_dropped_and_does_not_come_back():
    mind, proposal = with_growth_to_20()
    reason = mind.commit(proposal, SuppressGrowth())
    assert (mind.anchor, mind.growth_is_off) == (10, True)
    assert "20 is not taken" in reason
    mind.commit(proposal, Stable())
    assert mind.anchor == 10


def test_a_nudge_is_not_undone_by_a_stale_growth():
    mind, proposal = with_growth_to_20()
    mind.commit(proposal, NudgeDown(0.5))
    assert mind.anchor == 5
    reason = mind.commit(proposal, Stable())
    assert mind.anchor == 5
    assert "stale proposal" in reason


def test_a_meta_nudge_discards_the_proposal_too():
    mind, proposal = with_growth_to_20()
    reason = mind.commit(proposal, Stable(), nudge=Nudge(0.5, "the learning rate fell"))
    assert mind.anchor == 5
    assert "the learning rate fell" in reason
    mind.commit(proposal, Stable())
    assert mind.anchor == 5


def test_a_proposal_is_gone_with_the_next_report():
    mind, proposal = with_growth_to_20()
    report(mind, [100, None])
    mind.commit(proposal, Stable())
    assert mind.anchor == 20  # rank 0 sets the pace: the same wish was made anew
    mind, proposal = with_growth_to_20()
    report(mind, [None, 100])
    mind.commit(proposal, Stable())
    assert mind.anchor == 10


def test_a_suppressed_shrink_is_applied():
    mind = at_work([10, 10])
    for _ in range(3):
        proposal = report(mind, [10, 10], sync_ms=0.1)
    mind.commit(proposal, SuppressGrowth())
    assert (mind.anchor, mind.growth_is_off) == (9, True)


def test_five_stable_verdicts_in_a_row_end_the_latch():
    mind = at_work([10, 10])
    mind.commit(None, SuppressGrowth())
    for _ in range(4):
        mind.commit(None, Stable())
    assert mind.growth_is_off
    mind.commit(None, Stable())
    assert not mind.growth_is_off


def test_a_verdict_in_between_starts_the_latch_anew():
    mind = at_work([10, 10])
    for verdict in (SuppressGrowth(), Stable(), Stable(), Stable(), Stable(), NudgeDown(1.0)):
        mind.commit(None, verdict)
    for _ in range(4):
        mind.commit(None, Stable())
    assert mind.growth_is_off


def test_no_growth_is_proposed_while_latched_off():
    mind = at_work([10, 10])
    mind.commit(None, SuppressGrowth())
    for _ in range(3):
        assert report(mind, [10, 10], sync_ms=50) is None
    assert "growth is latched off" in mind.commit(None, Stable())


@pytest.mark.parametrize(
    ("anchor", "factor", "after"),
    [
        (10, 0.5, 5),
        (9, 0.5, 5),
        (1, 0.5, 1),
        (10, 0.05, 1),
        (10, 1.5, 10),
        (33, 0.7, 24),
        (10, math.nan, 10),
        (10, math.inf, 10),
        (10, -math.inf, 10),
        (10, -1.0, 1),
    ],
)
def test_a_nudge_lowers_the_anchor_within_bounds(anchor: int, factor: float, after: int):
    mind = elche(anchor=anchor)
    mind.commit(None, NudgeDown(factor))
    assert (mind.anchor, mind.growth_is_off) == (after, True)


def test_a_factor_that_is_no_number_still_drops_the_proposal():
    mind, proposal = with_growth_to_20()
    mind.commit(proposal, NudgeDown(math.nan))
    assert (mind.anchor, mind.growth_is_off) == (10, True)


def test_a_nudge_may_go_below_the_lower_bound():
    mind = elche(anchor=10, min_anchor=8)
    mind.commit(None, NudgeDown(0.5))
    assert mind.anchor == 5


@pytest.mark.parametrize(
    ("guards", "metas", "after"), [(0.5, 0.7, 50), (0.7, 0.5, 50), (math.nan, 0.5, 50), (0.5, math.nan, 50)]
)
def test_of_two_nudges_the_smaller_factor_wins_and_they_do_not_multiply(guards: float, metas: float, after: int):
    mind = elche(anchor=100)
    mind.commit(None, NudgeDown(guards), nudge=Nudge(metas))
    assert mind.anchor == after


# ------------------------------------------------------------------------------------------------------- relax_up


@pytest.mark.parametrize("mode", CADENCE_MODES)
def test_relax_up_adds_one_per_stable_cycle_from_stable_on(mode: Mode):
    mind = elche(mode=mode, relax_up=True)
    anchors = []
    for _ in range(8):
        cycle(mind, [10, 10], sync_ms=0.1)
        anchors.append(mind.anchor)
    assert anchors == [10, 10, 10, 10, 10, 11, 12, 13]


def test_while_relax_up_is_on_no_shrink_is_proposed():
    mind = at_work([10, 10], relax_up=True)
    for _ in range(3):
        assert report(mind, [10, 10], sync_ms=0.1) is None
    assert "relax_up is on" in mind.commit(None, SuppressGrowth())


def test_relax_up_does_not_come_on_top_of_a_growth():
    mind = at_work([10, 10], relax_up=True)
    for _ in range(3):
        proposal = report(mind, [10, 10], sync_ms=1000)
    assert proposal is not None
    mind.commit(proposal, Stable())
    assert mind.anchor == proposal.anchor


def relaxed(mind: ElChe, ms: Sequence[float], verdict: Verdict, nudge: Nudge | None = None) -> bool:
    before = mind.anchor
    report(mind, ms, sync_ms=0.1)
    mind.commit(None, verdict, nudge=nudge)
    return mind.anchor > before


def test_relax_up_waits_for_the_latch_the_bound_the_cap_and_the_verdict():
    assert relaxed(at_work([10, 10]), [10, 10], Stable()) is False
    assert relaxed(at_work([10, 10], relax_up=True, max_anchor=100), [10, 10], Stable()) is True
    full = at_work([10, 10], relax_up=True, max_anchor=10)
    assert relaxed(full, [10, 10], Stable()) is False
    assert relaxed(at_work([10, 10], relax_up=True), [10, 10], SuppressGrowth()) is False
    assert relaxed(at_work([10, 10], relax_up=True), [10, 10], Stable(), Nudge(1.0)) is False
    latched = at_work([10, 10], relax_up=True)
    latched.commit(None, SuppressGrowth())
    assert relaxed(latched, [10, 10], Stable()) is False
    capped = at_work([10, 10], relax_up=True)
    capped.quotas(10)
    assert relaxed(capped, [10, 10], Stable()) is False


def test_relax_up_keeps_the_lead_within_max_batch_diff():
    assert relaxed(at_work([10, 20], relax_up=True, max_batch_diff=11), [10, 20], Stable()) is True
    assert relaxed(at_work([10, 20], relax_up=True, max_batch_diff=10), [10, 20], Stable()) is False


# ------------------------------------------------------------------------------------------------------ sync, async


@pytest.mark.parametrize("mode", SYNC_MODES)
def test_sync_modes_never_change_the_anchor(mode: Mode):
    mind = elche(3, mode=mode, relax_up=True)
    assert mind.anchor == 1
    for _ in range(30):
        proposal = report(mind, [10, 14, 25], sync_ms=1000)
        assert proposal is None
        mind.commit(proposal, Stable())
        assert plan(mind) == [3, 2, 1]
    mind.commit(None, NudgeDown(0.5), nudge=Nudge(0.5))
    assert plan(mind, 2) == [1, 1, 1]
    assert mind.anchor == 1


def test_a_sync_run_hands_no_anchor_to_a_later_cadence_run():
    stored = elche(mode="cpu_sync").snapshot()
    assert stored["anchor"] is None
    assert ElChe.restore(ElCheConfig(mode="cpu_cadence"), stored).anchor == 10


def test_a_cadence_anchor_does_not_enter_a_sync_run():
    stored = elche(anchor=100).snapshot()
    assert ElChe.restore(ElCheConfig(mode="cpu_sync"), stored).anchor == 1


def test_a_restored_anchor_respects_a_lower_maximum():
    stored = elche(anchor=100).snapshot()
    assert ElChe.restore(ElCheConfig(mode="cpu_cadence", max_anchor=50), stored).anchor == 50


def test_the_overshoot_widens_with_stable_verdicts_and_falls_back_on_a_nudge():
    mind = elche(mode="cpu_async")
    assert mind.overshoot == 3
    mind.commit(None, Stable())
    assert mind.overshoot == 4
    mind.commit(None, SuppressGrowth())
    assert mind.overshoot == 4
    for _ in range(20):
        mind.commit(None, Stable())
    assert mind.overshoot == 15
    mind.commit(None, Stable(), nudge=Nudge(0.9))
    assert mind.overshoot == 3


def test_a_configured_overshoot_is_what_it_says_and_only_async_has_one():
    mind = elche(mode="cpu_async", max_overshoot=7)
    mind.commit(None, Stable())
    assert mind.overshoot == 7
    assert elche(mode="cpu_cadence", max_overshoot=7).overshoot == 0


# ------------------------------------------------------------------------------------------------------ membership


def test_when_the_anchor_rank_dies_the_slowest_of_the_others_sets_the_pace_at_once():
    mind = elche(3)
    cycle(mind, [10, 20, 40])
    mind.remove(2)
    assert mind.anchor_rank == 1
    assert mind.quotas(EPOCH).by_rank == {0: 20, 1: 10}


def test_when_another_rank_dies_the_pace_stays():
    mind = elche(3)
    cycle(mind, [10, 20, 40])
    mind.remove(0)
    assert mind.quotas(EPOCH).by_rank == {1: 20, 2: 10}
    assert mind.smoothed_ms(0) is None


def test_a_proposal_does_not_outlive_a_death():
    mind, proposal = with_growth_to_20()
    mind.remove(1)
    mind.commit(proposal, Stable())
    assert mind.anchor == 10


def test_when_the_pinned_rank_dies_another_is_elected():
    mind = elche(3, anchor_rank=0)
    cycle(mind, [10, 20, 40])
    mind.remove(0)
    assert mind.anchor_rank == 2


def test_a_joiner_gets_the_anchor_until_it_is_known():
    mind = elche(2)
    cycle(mind, [10, 25])
    mind.add(5)
    assert mind.quotas(EPOCH).by_rank == {0: 25, 1: 10, 5: 10}
    report(mind, [10, 25])
    readings = {0: Reading(25, 250.0), 1: Reading(10, 250.0), 5: Reading(10, 50.0)}
    mind.report(readings, sync_ms=1, compute_ms={})
    assert mind.quotas(EPOCH).by_rank == {0: 25, 1: 10, 5: 50}


def test_a_rank_that_joins_again_starts_unknown():
    mind = elche(2)
    cycle(mind, [10, 25])
    mind.add(1)
    assert mind.smoothed_ms(1) is None
    assert mind.anchor_rank == 0


def test_the_last_rank_may_go():
    mind = elche(1)
    cycle(mind, [10])
    mind.remove(0)
    assert mind.anchor_rank is None
    assert mind.quotas(EPOCH).by_rank == {}


# ---------------------------------------------------------------------------------------------------------- memory


verdict_choices = st.sampled_from([Stable(), Stable(), Stable(), SuppressGrowth(), NudgeDown(0.5), NudgeDown(math.nan)])
cycles = st.lists(
    st.tuples(
        st.lists(st.none() | st.floats(0.1, 100), min_size=3, max_size=3),
        st.floats(0, 500),
        verdict_choices,
        st.none() | st.just(Nudge(0.7)),
        st.integers(20, 400),
    ),
    min_size=1,
    max_size=15,
)
configs = st.sampled_from(
    [
        ElCheConfig(mode="cpu_cadence"),
        ElCheConfig(mode="nccl_cadence", anchor=100, relax_up=True, max_batch_diff=50, overhead_target=0.2),
        ElCheConfig(mode="cpu_async", anchor_rank=1),
        ElCheConfig(mode="cpu_sync"),
    ]
)


def live(mind: ElChe, days: list[tuple[list[float | None], float, Verdict, Nudge | None, int]]) -> list[Any]:
    said: list[Any] = []
    for ms, sync_ms, verdict, nudge, epoch in days:
        proposal = report(mind, ms, sync_ms=sync_ms, round_ms=sync_ms)
        reason = mind.commit(proposal, verdict, nudge=nudge)
        planned = mind.quotas(epoch, {0: sync_ms / 10})
        said.append((proposal, reason, planned, mind.phase, mind.cycle_phase, mind.anchor, mind.overshoot))
        assert min(planned.by_rank.values()) >= 1
        assert planned.reason
        assert reason
        assert mind.anchor >= 1
    return said


@given(configs, cycles, cycles)
def test_a_restored_mind_answers_as_the_old_one(config: ElCheConfig, past: list[Any], future: list[Any]):
    old = ElChe(config, (0, 1, 2))
    live(old, past)
    new = ElChe.restore(config, json.loads(json.dumps(old.snapshot())))
    assert new.snapshot() == old.snapshot()
    assert live(new, future) == live(old, future)
    assert new.snapshot() == old.snapshot()


@given(configs, cycles)
def test_the_anchor_stays_within_its_maximum_and_phases_never_go_back(config: ElCheConfig, days: list[Any]):
    mind = ElChe(config, (0, 1, 2))
    for day in days:
        before = mind.phase
        live(mind, [day])
        assert before <= mind.phase <= before + 1
        assert mind.anchor <= config.anchor_bounds[1]
        assert not config.is_sync or mind.anchor == 1


def test_a_snapshot_does_not_change_with_the_mind_it_was_taken_from():
    mind = elche()
    cycle(mind, [10, 20])
    stored = mind.snapshot()
    kept = json.dumps(stored)
    cycle(mind, [30, 40])
    assert json.dumps(stored) == kept
    restored = ElChe.restore(ElCheConfig(mode="cpu_cadence"), stored)
    cycle(restored, [30, 40])
    assert json.dumps(stored) == kept
