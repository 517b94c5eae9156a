"""The ceiling: what living ranks do together and does not come about ends the run, with a save."""

from __future__ import annotations

import pytest

from flodl.decide.messages import (
    Alert,
    Command,
    End,
    Finish,
    FormGroup,
    RankSuspected,
    RunWindow,
    SaveBegun,
    TimeReached,
)
from tests.decide.hands import Hand, leave, only

STALL, CALLBACK = 300.0, 3600.0


def three(mode: str = "cpu_cadence", **blocks: object) -> Hand:
    hand = Hand(mode, 3, **blocks)  # type: ignore[arg-type]
    hand.start()
    return hand


def passes(hand: Hand, seconds: float) -> tuple[Command, ...]:
    hand.now += seconds
    return hand.tell(TimeReached(at=hand.now))


def test_an_averaging_that_does_not_come_about_is_given_up_and_the_run_is_saved() -> None:
    hand = three()
    hand.round()
    for rank in range(3):
        hand.done(rank)
    due = hand.coordinator.deadline
    assert due == pytest.approx(hand.now + STALL)
    assert passes(hand, STALL - 1.0) == ()
    said = passes(hand, 2.0)
    assert only(Alert, said).text.startswith("round 2 was not averaged in 300 s")
    assert [command.ranks for command in said if isinstance(command, FormGroup)] == [(0,), (1,), (2,)]
    for rank in range(3):
        hand.formed(rank, last_round=1)
    assert only(SaveBegun, hand.said).why == "reduce_stall"
    end = leave(hand)
    assert (end.status, end.exit_code) == ("failed", 4)


def test_who_does_not_even_answer_alone_is_given_up() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    passes(hand, STALL)
    hand.formed(1)
    said = passes(hand, 61.0)
    assert [command.rank for command in said if isinstance(command, Alert)] == [0, 2]
    assert only(Finish, said).to == (1,)
    assert leave(hand).totals.dead_ranks == (0, 2)


def test_nobody_answers_at_all() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    passes(hand, STALL)
    end = only(End, passes(hand, 61.0))
    assert (end.status, end.exit_code) == ("failed", 5)
    assert hand.coordinator.deadline is None


def test_a_group_that_does_not_come_about_is_given_up() -> None:
    hand = three()
    hand.died(0)
    said = passes(hand, STALL)
    assert only(Alert, said).text.startswith("generation 2 was not formed")


def test_a_group_is_waited_for_as_long_as_an_evaluation_may_take_where_a_rank_is_in_one() -> None:
    hand = three(num_samples=30)
    hand.round()
    assert [order.callbacks for order in hand.said if isinstance(order, RunWindow)] == [("eval",), (), ()]
    hand.died(2)
    assert passes(hand, CALLBACK + STALL - 1.0) == ()
    said = passes(hand, 2.0)
    assert only(Alert, said).text.startswith("generation 2 was not formed in 3900 s")
    hand.formed(1, last_round=1)
    assert passes(hand, CALLBACK) == ()
    said = passes(hand, 61.0)
    assert only(Alert, said).text.endswith("did not answer in 3660 s when the run was to end")
    assert only(Finish, said).to == (1,)


def test_a_grant_has_a_ceiling_too_once_a_first_one_was_run() -> None:
    hand = three("cpu_sync")
    assert hand.coordinator.deadline is None, "a first step may compile"
    hand.round()
    assert hand.coordinator.deadline == pytest.approx(hand.now + STALL + 60.0)
    (last,) = {order.rounds[-1].number for order in hand.said if isinstance(order, RunWindow)}
    said = passes(hand, STALL + 60.0)
    assert only(Alert, said).text.startswith(f"rounds 2 to {last} were not all averaged in 360 s, and no rank is known")


def test_a_grant_with_an_evaluation_may_take_as_long_as_that_may() -> None:
    hand = three("cpu_sync", num_samples=30)
    hand.round()
    assert hand.coordinator.deadline == pytest.approx(hand.now + STALL + 60.0 + 3600.0)


def test_ranks_that_train_owe_each_other_nothing() -> None:
    hand = three()
    assert hand.coordinator.deadline is None


def test_a_silent_rank_is_told_of_and_nothing_else_happens() -> None:
    hand = three()
    told = only(Alert, hand.tell(RankSuspected(at=hand.later(), rank=1, silent_seconds=5.2)))
    assert (told.text, told.rank) == ("rank 1 (cpu of here) has not been heard for 5.2 s", 1)
    assert "30 s" in told.reason
    hand.died(1)
    assert hand.tell(RankSuspected(at=hand.later(), rank=1, silent_seconds=5.2)) == ()
