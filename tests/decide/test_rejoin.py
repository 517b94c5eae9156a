"""Rejoin: a dead rank's device gets another process, which takes its place at a round's edge."""

from __future__ import annotations

import pytest

from flodl.decide.messages import (
    Alert,
    Average,
    Dismiss,
    Finish,
    FormGroup,
    RankDied,
    RankFailed,
    Restart,
    RunWindow,
    SaveBegun,
    TimeReached,
)
from flodl.spec.job import MembershipConfig, TrainerConfig
from tests.decide.comebacks import READY_SECONDS, alerts, at_edge, comes, joining, lose, regroup, three, wait, windows
from tests.decide.hands import leave, only


def test_without_rejoin_nobody_is_started_again() -> None:
    hand = three(membership=MembershipConfig())
    lose(hand)
    assert wait(hand, 1000.0) == ()
    assert hand.coordinator.view().restarts == {}


def test_a_replacement_is_started_after_a_pause_while_the_others_go_on() -> None:
    hand = three()
    hand.died(1)
    assert alerts(hand) == ["rank 1 (cpu of here) died: killed by SIGKILL; it is restarted in 1 s (restart 1 of 3)"]
    due = hand.now + 1.0
    regroup(hand, 0)
    assert hand.coordinator.deadline == pytest.approx(due)
    assert wait(hand, 0.9) == ()
    assert only(Restart, wait(hand, 0.1)).reason == "rank 1 (cpu of here) is started again, restart 1"
    assert hand.coordinator.view().awaited_ranks == (1,)
    hand.round()
    assert set(windows(hand)) == {0, 2}, "nobody waits for it"


def test_who_is_ready_takes_its_place_at_the_next_edge_and_adopts_a_survivors_state() -> None:
    hand = three()
    hand.round()
    lose(hand, last_round=1)
    comes(hand)
    hand.done(0)
    assert hand.coordinator.view().dead_ranks == (1,), "not before the edge"
    hand.done(2)
    hand.averaged(0)
    group = only(FormGroup, hand.averaged(2))
    assert (group.to, group.ranks, group.joiners, group.accept_round) == ((0, 1, 2), (0, 1, 2), (1,), 2)
    assert group.source in (0, 2)
    assert "rank 1 (cpu of here) joins after round 2" in group.reason
    regroup(hand, 2)
    (told,) = alerts(hand)
    assert told.startswith("rank 1 (cpu of here) is back after ")
    assert told.endswith("s (restart 1 of 3)")
    assert windows(hand) == {0: 10, 1: 10, 2: 10}
    view = hand.coordinator.view()
    assert (view.dead_ranks, view.awaited_ranks, view.restarts) == ((), (), {1: 1})


def test_nothing_is_known_of_a_newcomers_speed_so_its_quota_is_the_anchor_until_it_has_reported() -> None:
    hand = three()
    for _ in range(3):
        hand.round(ms=(10.0, 5.0, 10.0))
    assert windows(hand)[1] == 20
    lose(hand, last_round=3)
    comes(hand)
    at_edge(hand)
    regroup(hand, 4)
    assert windows(hand)[1] == 10
    hand.round(ms=(10.0, 5.0, 10.0))
    assert windows(hand)[1] == 20


def test_words_of_the_earlier_process_are_dropped() -> None:
    hand = three()
    hand.round()
    before = hand.report(1)
    lose(hand, last_round=1)
    comes(hand)
    assert hand.tell(RankDied(at=hand.later(), rank=1, cause="of the earlier process", incarnation=0)) == ()
    assert hand.tell(RankFailed(at=hand.later(), rank=1, kind="step", message="late", incarnation=0)) == ()
    at_edge(hand)
    regroup(hand, 2)
    assert hand.tell(before) == ()
    late = hand.report(1, generation=1)
    assert hand.tell(late) == ()
    hand.done(0)
    hand.done(2)
    assert only(Average, hand.done(1)).to == (0, 1, 2)


def test_pauses_double_and_after_max_restarts_a_rank_is_given_up() -> None:
    hand = three(membership=MembershipConfig(rejoin=True, max_restarts=2))
    lose(hand)
    for incarnation, pause in ((1, 1.0), (2, 2.0)):
        assert wait(hand, pause * 0.9) == ()
        assert only(Restart, wait(hand, pause * 0.1)).incarnation == incarnation
        hand.tell(RankDied(at=hand.later(), rank=1, cause="exit code 1", incarnation=incarnation))
        assert alerts(hand) == ["rank 1 (cpu of here) could not come back: exit code 1"]
    assert only(Alert, hand.said).reason == "it was restarted 2 times (membership.max_restarts) and is given up"
    assert wait(hand, 1000.0) == ()
    assert hand.coordinator.view().restarts == {1: 2}


def test_a_rank_that_dies_again_after_it_was_back_is_counted_on() -> None:
    hand = three()
    hand.round()
    lose(hand, last_round=1)
    comes(hand)
    at_edge(hand)
    regroup(hand, 2)
    hand.tell(RankDied(at=hand.later(), rank=1, cause="exit code 1", incarnation=1))
    assert alerts(hand)[0].endswith("it is restarted in 2 s (restart 2 of 3)")


def test_a_replacement_that_is_not_ready_in_time_is_ended_and_the_next_one_is_due() -> None:
    hand = three()
    lose(hand)
    only(Restart, wait(hand, 1.0))
    wait(hand, READY_SECONDS)
    assert only(Dismiss, hand.said).rank == 1
    assert "not ready within cluster.controller.join.timeout_seconds=50" in alerts(hand)[0]
    assert hand.ready(1, incarnation=1) == (), "too late"
    assert only(Restart, wait(hand, 2.0)).incarnation == 2


def test_a_replacement_that_has_built_something_else_is_ended() -> None:
    hand = three()
    lose(hand, 0)
    only(Restart, wait(hand, 1.0))
    hand.ready(0, incarnation=1, fingerprint="another model")
    assert only(Dismiss, hand.said).rank == 0
    (told,) = alerts(hand)
    assert "here (rank 0)=fingerprint another model: the models' tensors differ: rank 1 on here has model" in told
    assert only(Alert, hand.said).reason == "it is not restarted: another process would find the same"
    regroup(hand, 0)
    assert wait(hand, 1000.0) == (), "no further try"


def test_a_state_that_travels_for_longer_than_groups_are_waited_for_has_the_time_for_it() -> None:
    hand, _ = joining(num_parameters=10**9)
    hand.formed(0, 2)
    assert wait(hand, 340.0) == ()
    assert only(Dismiss, wait(hand, 30.0)).rank == 1


def test_where_nobody_is_left_to_start_it_a_rank_is_not_expected() -> None:
    hand = three()
    hand.tell(RankDied(at=hand.later(), rank=1, cause="its host is lost", can_return=False))
    assert alerts(hand)[0].endswith("it cannot be restarted: its host's agent is gone")
    regroup(hand, 0)
    assert wait(hand, 1000.0) == ()


def test_two_join_at_one_edge() -> None:
    hand = three(num_ranks=4)
    hand.round()
    lose(hand, 1, last_round=1)
    lose(hand, 2, last_round=1)
    restarts = [command.rank for command in wait(hand, 2.0) if isinstance(command, Restart)]
    assert restarts == [1, 2]
    for rank in restarts:
        hand.ready(rank, incarnation=1)
    assert at_edge(hand).joiners == (1, 2)
    regroup(hand, 2)
    assert len(alerts(hand)) == 2
    assert set(windows(hand)) == {0, 1, 2, 3}


def test_who_is_not_needed_any_more_is_ended_when_the_run_is() -> None:
    hand = three()
    lose(hand)
    only(Restart, wait(hand, 1.0))
    hand.stop()
    hand.round()
    assert only(Dismiss, hand.said).rank == 1
    finish = hand.said
    assert hand.ready(1, incarnation=1) == ()
    hand.said = finish
    assert leave(hand).status == "interrupted"


def test_no_replacement_is_started_for_a_run_that_is_about_to_stop() -> None:
    hand = three()
    lose(hand)
    hand.stop()
    assert not [command for command in wait(hand, 10.0) if isinstance(command, Restart)]


def test_a_replacement_that_dies_while_the_run_is_being_ended_changes_nothing() -> None:
    hand = three(membership=MembershipConfig(rejoin=True, max_failure=2))
    hand.round()
    lose(hand, last_round=1)
    only(Restart, wait(hand, 1.0))
    hand.died(2)
    hand.tell(RankDied(at=hand.later(), rank=1, cause="killed", incarnation=1))
    assert [type(command) for command in hand.said] == [Alert]
    hand.formed(0, 1)
    assert only(SaveBegun, hand.said).why == "max_failure_exceeded"


def test_a_stop_while_one_joins_ends_the_run_at_that_edge() -> None:
    hand, _ = joining()
    assert hand.stop() == ()
    regroup(hand, 2)
    assert only(SaveBegun, hand.said).round == 2
    assert leave(hand).status == "interrupted"


@pytest.mark.parametrize("mode", ["cpu_sync", "nccl_sync"])
def test_equal_shares_are_dealt_anew_so_that_the_newcomer_has_one_at_once(mode: str) -> None:
    hand = three(mode)
    hand.round()
    hand.died(1)
    regroup(hand, 1)
    comes(hand)
    regroup(hand, at_edge(hand).accept_round)
    held = {c.to[0]: sum(map(len, c.ranges)) for c in hand.said if isinstance(c, RunWindow)}
    assert set(held) == {0, 1, 2}
    assert max(held.values()) - min(held.values()) <= 10


def test_max_failure_counts_who_is_dead_and_not_who_is_back() -> None:
    hand = three(membership=MembershipConfig(rejoin=True, max_failure=2), num_ranks=4)
    hand.round()
    lose(hand, last_round=1)
    comes(hand)
    at_edge(hand)
    regroup(hand, 2)
    hand.died(2)
    assert only(FormGroup, hand.said).ranks == (0, 1, 3)
    hand.died(3)
    assert {command.ranks for command in hand.said if isinstance(command, FormGroup)} == {(0,), (1,)}, "the end"


def test_a_lone_survivor_under_nccl_trains_on_while_another_may_come_and_no_longer() -> None:
    hand = three("nccl_cadence", 2, membership=MembershipConfig(rejoin=True, max_restarts=1))
    hand.round()
    lose(hand, last_round=1)
    hand.round()
    assert set(windows(hand)) == {0}
    only(Restart, wait(hand, 1.0))
    hand.tell(RankDied(at=hand.later(), rank=1, cause="exit code 1", incarnation=1))
    assert only(FormGroup, hand.said).ranks == (0,), "each says which round it holds"
    hand.formed(0, 2)
    assert only(SaveBegun, hand.said).why == "single_survivor"
    assert only(Finish, hand.said).to == (0,)


def test_a_run_whose_dead_came_back_is_done_and_says_so() -> None:
    hand, _ = joining(num_samples=600, trainer=TrainerConfig(num_epochs=2, batch_size=10))
    regroup(hand, 2)
    while not any(isinstance(command, Finish) for command in hand.said):
        hand.round()
    end = leave(hand)
    assert (end.status, end.exit_code, end.totals.dead_ranks, end.totals.restarts) == ("done", 0, (), {1: 1})
    assert end.reason == (
        "all 2 epochs are done; who died on the way came back: rank 1 (cpu of here): killed by SIGKILL"
    )


def test_a_restored_mind_goes_on_expecting() -> None:
    hand = three()
    lose(hand)
    other = three()
    other.coordinator.restore(hand.coordinator.snapshot())
    assert other.coordinator.deadline == hand.coordinator.deadline
    event = TimeReached(at=hand.later(1000.0))
    assert other.coordinator.handle(event) == hand.coordinator.handle(event) != ()
