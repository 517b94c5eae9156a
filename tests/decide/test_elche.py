"""ElChe: phases, the window's plan, membership and memory."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.elche import ElChe
from flodl.decide.phase import Phase
from flodl.decide.readings import Reading
from flodl.decide.verdict import Nudge, NudgeDown, Stable, SuppressGrowth, Verdict
from flodl.spec.elche import ElCheConfig, Mode
from tests.decide.minds import CADENCE_MODES, EPOCH, SYNC_MODES, cycle, elche, plan, report, with_growth_to_20


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
