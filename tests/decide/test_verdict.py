"""What verdicts and nudges make of a proposal; relaxing upward; what sync and async modes do differently."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from flodl.decide.elche import ElChe
from flodl.decide.verdict import Nudge, NudgeDown, Stable, SuppressGrowth, Verdict, named, objections
from flodl.spec.elche import ElCheConfig, Mode
from tests.decide.minds import CADENCE_MODES, SYNC_MODES, at_work, cycle, elche, plan, report, with_growth_to_20


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


def test_what_was_objected_is_found_again_in_a_windows_reason() -> None:
    said = [SuppressGrowth("divergence rises"), Nudge(0.5, "the learning rate fell to 0.01"), Stable("all is well")]
    told = "; ".join(["stable: 10 on rank 1", *map(named, said), "20 is not taken: a nudge drops the proposal"])
    assert objections(f"round 7 of epoch 2: 16 batches ({told}; nudge 10 -> 5)") == (
        "SuppressGrowth: divergence rises",
        "Nudge: the learning rate fell to 0.01",
        "20 is not taken: a nudge drops the proposal",
        "nudge 10 -> 5",
    )
    assert objections("round 7 of epoch 2: 16 batches (stable: 10 on rank 1; divergence 0.1 shows no rise)") == ()
