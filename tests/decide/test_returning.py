"""A round's edge at which ranks join: newcomers, sources and survivors die there, or are late."""

from __future__ import annotations

from flodl.decide.messages import (
    Dismiss,
    End,
    FormGroup,
    RankDied,
    Restart,
)
from tests.decide.comebacks import alerts, at_edge, joining, lose, regroup, three, wait, windows
from tests.decide.hands import only


def test_a_newcomer_that_dies_while_it_joins_costs_the_others_that_edge_only() -> None:
    hand, group = joining()
    hand.tell(RankDied(at=hand.later(), rank=1, cause="killed", incarnation=1))
    again = only(FormGroup, hand.said)
    assert (again.ranks, again.joiners, again.source) == ((0, 2), (), None)
    assert hand.formed(0, 2, generation=group.generation) == ()
    regroup(hand, 2)
    assert set(windows(hand)) == {0, 2}
    assert only(Restart, wait(hand, 2.0)).incarnation == 2


def test_the_source_dies_while_it_hands_on_so_another_one_does() -> None:
    hand, group = joining()
    hand.tell(RankDied(at=hand.later(), rank=group.source or 0, cause="killed"))
    again = only(FormGroup, hand.said)
    assert again.joiners == (1,)
    assert again.source not in (1, group.source)
    regroup(hand, 2)
    assert set(windows(hand)) == {0, 1, 2} - {group.source}


def test_newcomers_alone_go_on_where_they_hold_the_round_already() -> None:
    hand, _ = joining(2)
    hand.formed(1, 2)
    hand.tell(RankDied(at=hand.later(), rank=0, cause="killed"))
    asked = only(FormGroup, hand.said)
    assert (asked.ranks, asked.joiners, asked.source) == ((1,), (), None)
    hand.formed(1, 2)
    assert set(windows(hand)) == {1}


def test_of_newcomers_alone_the_one_that_holds_the_round_hands_it_on() -> None:
    hand = three()
    hand.round()
    lose(hand, 1, last_round=1)
    lose(hand, 2, last_round=1)
    wait(hand, 2.0)
    for rank in (1, 2):
        hand.ready(rank, incarnation=1)
    assert at_edge(hand).joiners == (1, 2)
    hand.tell(RankDied(at=hand.later(), rank=0, cause="killed"))
    hand.formed(1, 0)
    group = only(FormGroup, hand.formed(2, 2))
    assert (group.source, group.joiners) == (2, (1,))
    regroup(hand, 2)
    assert set(windows(hand)) == {1, 2}


def test_where_nobody_who_is_left_holds_the_weights_the_run_is_over() -> None:
    hand, _ = joining(2)
    hand.tell(RankDied(at=hand.later(), rank=0, cause="killed"))
    end = only(End, hand.formed(1, 0))
    assert (end.status, end.exit_code) == ("failed", 5)
    assert "nobody who is left holds the weights" in end.reason


def test_a_newcomer_that_does_not_take_its_place_in_time_is_given_up() -> None:
    hand, _ = joining()
    hand.formed(0, 2)
    wait(hand, 31.0)
    assert only(Dismiss, hand.said).rank == 1
    assert only(FormGroup, hand.said).ranks == (0, 2)
    regroup(hand, 2)
    assert set(windows(hand)) == {0, 2}


def test_a_newcomer_is_not_given_up_for_a_survivor_that_is_late() -> None:
    hand, _ = joining()
    hand.formed(1, 2)
    hand.formed(0, 2)
    assert wait(hand, 31.0) == ()
    assert hand.coordinator.view().dead_ranks == ()
    hand.formed(2, 2)
    assert set(windows(hand)) == {0, 1, 2}


def test_a_survivor_that_never_comes_to_the_edge_is_the_end_as_for_any_other_group() -> None:
    hand, _ = joining()
    hand.formed(1, 2)
    hand.formed(0, 2)
    wait(hand, 31.0)
    wait(hand, 300.0)
    assert "was not formed in 300 s" in alerts(hand)[0]
    assert [command.ranks for command in hand.said if isinstance(command, FormGroup)] == [(0,), (1,), (2,)]
