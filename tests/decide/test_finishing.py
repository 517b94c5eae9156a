"""The end: one rank evaluates and saves, a failed save moves on, everybody leaves in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flodl.decide.messages import Alert, BundleKept, Command, End, Finish, Goodbye, TimeReached
from flodl.decide.timeouts import timeouts_of
from flodl.spec.job import DebugConfig, MembershipConfig, TrainerConfig
from flodl.spec.stop import StopConfig
from tests.decide.hands import Hand, only


def at_the_end(num_ranks: int = 3, **blocks: object) -> Hand:
    """A run whose last round has just been accepted."""
    blocks.setdefault("trainer", TrainerConfig(num_epochs=1, batch_size=10))
    hand = Hand(num_ranks=num_ranks, num_samples=10 * num_ranks, **blocks)  # type: ignore[arg-type]
    hand.start()
    hand.round()
    return hand


def test_the_saver_goes_first_and_the_others_leave_when_the_weights_are_safe() -> None:
    hand = at_the_end()
    finish = only(Finish, hand.said)
    assert (finish.to, finish.callbacks, finish.reason) == ((0,), ("eval", "save"), "the one epoch is done")
    rest = only(Finish, hand.goodbye(0))
    assert (rest.to, rest.callbacks, rest.reason) == ((1, 2), (), "the weights are saved")
    assert hand.goodbye(1) == ()
    end = only(End, hand.goodbye(2))
    assert (end.status, end.exit_code, end.totals.eval) == ("done", 0, {"accuracy": 0.5})
    assert hand.coordinator.over
    assert hand.goodbye(2) == ()


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_who_leaves_is_told_which_epoch_the_result_is_of(rounds: int) -> None:
    """The newest one of which anything is in it: two rounds make an epoch here."""
    hand = Hand(num_ranks=2, num_samples=400, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    hand.start()
    for _ in range(rounds - 1):
        hand.round()
    hand.stop()
    hand.round()
    assert only(Finish, hand.said).epoch == (rounds - 1) // 2


def test_a_failed_save_is_tried_by_the_next_rank_and_told() -> None:
    hand = at_the_end()
    said = hand.goodbye(0, failed=["save"])
    assert "saving failed: full" in only(Alert, said).text
    again = only(Finish, said)
    assert (again.to, again.callbacks) == ((1,), ("save",))
    assert only(Finish, hand.goodbye(1)).to == (2,)
    assert only(End, hand.goodbye(2)).status == "done"


def test_a_run_that_nobody_could_save_has_failed() -> None:
    hand = at_the_end(num_ranks=2)
    hand.goodbye(0, failed=["save"])
    end = only(End, hand.goodbye(1, failed=["save"]))
    assert (end.status, end.exit_code) == ("failed", 5)
    assert end.reason == "training ended, but no rank could save the weights"


def test_a_saver_that_dies_is_replaced_even_where_one_death_ends_a_run() -> None:
    hand = at_the_end(membership=MembershipConfig(max_failure=1))
    said = hand.died(0)
    assert only(Finish, said).to == (1,)
    assert only(Finish, said).callbacks == ("eval", "save"), "its evaluation is gone with it"
    assert "while leaving" in only(Alert, said).text
    hand.goodbye(1)
    end = only(End, hand.goodbye(2))
    assert (end.status, end.exit_code, end.totals.dead_ranks) == ("degraded", 0, (0,))


def test_a_rank_that_dies_on_its_way_out_is_not_waited_for() -> None:
    hand = at_the_end()
    hand.goodbye(0)
    hand.died(2)
    assert only(End, hand.goodbye(1)).status == "degraded"


def test_all_others_dead_on_the_way_out_end_the_run_too() -> None:
    hand = at_the_end(num_ranks=2)
    hand.goodbye(0)
    assert only(End, hand.died(1)).status == "degraded"


def test_a_bundle_that_is_put_in_place_is_waited_for_when_nobody_is_left() -> None:
    hand = at_the_end(num_ranks=2)
    hand.tell(Goodbye(at=hand.later(), rank=0))
    assert [type(command) for command in hand.died(1)] == [Alert]
    assert only(End, hand.kept()).status == "degraded"


@pytest.mark.parametrize("late", ["of a second sending", "of a rank that has died", "of a rank that has left"])
def test_the_weights_are_saved_when_their_bundle_is_there_be_it_late(late: str) -> None:
    """Nobody was left to save them once more, and the run was said to have failed."""
    hand = at_the_end(num_ranks=1 if late == "of a second sending" else 2)
    first = hand.save
    assert first is not None
    if late == "of a second sending":  # of a checkpoint of that round the first one was under way still
        hand.kept("connection reset")
    elif late == "of a rank that has died":
        hand.died(0)
    else:
        hand.kept("connection reset")
        hand.tell(Goodbye(at=hand.later(), rank=0))
    hand.tell(BundleKept(at=hand.later(), rank=first.rank, round=first.round))
    if len(hand.places) == 2:
        assert hand.save is not None
        assert hand.save.rank == 1
        hand.kept("disk full")
    end = only(End, hand.tell(Goodbye(at=hand.later(), rank=len(hand.places) - 1)))
    assert (end.status, end.exit_code) == ("degraded" if late == "of a rank that has died" else "done", 0)


def test_a_limit_of_time_that_passes_while_the_weights_are_saved_is_no_news() -> None:
    hand = at_the_end(stop=StopConfig(max_time="10m"))
    hand.now += 1000.0
    assert hand.kept() == ()


def test_an_exit_after_the_goodbye_is_no_death() -> None:
    hand = at_the_end()
    hand.goodbye(0)
    assert hand.died(0, "exit 0") == ()


def test_a_bystander_that_dies_while_another_saves_changes_nothing() -> None:
    hand = at_the_end()
    said = hand.died(2)
    assert [type(command) for command in said] == [Alert]
    assert only(Finish, hand.goodbye(0)).to == (1,)


@pytest.mark.parametrize(("error", "code"), [("", 0), ("rank 1 is gone", 5), (None, 5)])
def test_the_last_saver_may_die_too_and_the_end_comes_with_word_of_its_bundle(error: str | None, code: int) -> None:
    hand = at_the_end(num_ranks=2)
    hand.died(0)
    assert [type(command) for command in hand.died(1)] == [Alert]
    assert due(hand) == pytest.approx(hand.now + timeouts_of(hand.job.membership.timeout_scale).collective)
    assert hand.tell(BundleKept(at=hand.later(), rank=0, round=1, error="rank 0 is gone")) == () or error is None
    said = waited(hand) if error is None else hand.tell(BundleKept(at=hand.later(), rank=1, round=1, error=error))
    end = only(End, said)
    assert (end.status, end.exit_code) == ("failed" if code else "degraded", code)


def test_a_goodbye_or_a_stop_out_of_season_changes_nothing() -> None:
    hand = Hand()
    hand.start()
    assert hand.goodbye(0) == ()
    hand = at_the_end()
    assert hand.stop() == ()


def due(hand: Hand) -> float:
    """The moment until which nobody is given up."""
    assert hand.coordinator.deadline is not None
    return hand.coordinator.deadline


def waited(hand: Hand) -> Sequence[Command]:
    """Nobody says anything until that moment, and then it has come."""
    assert hand.tell(TimeReached(at=due(hand) - 0.001)) == ()
    hand.now = due(hand)
    return hand.tell(TimeReached(at=hand.now))


def test_a_saver_that_hangs_is_given_up_after_what_its_callbacks_may_take_and_the_next_one_saves() -> None:
    hand = at_the_end()
    limits = timeouts_of(hand.job.membership.timeout_scale)
    assert due(hand) == pytest.approx(hand.now + limits.callback + limits.collective)
    said = waited(hand)
    assert "rank 0 (cpu of here): did not leave in time" in only(Alert, said).text
    assert only(Finish, said).to == (1,)
    hand.goodbye(1)
    end = only(End, hand.goodbye(2))
    assert (end.status, end.exit_code, end.totals.dead_ranks) == ("degraded", 0, (0,))


def test_ranks_that_hang_when_all_is_saved_are_given_up_together_within_an_averagings_limit() -> None:
    hand = at_the_end()
    hand.goodbye(0)
    assert due(hand) == pytest.approx(hand.now + timeouts_of(hand.job.membership.timeout_scale).collective)
    end = only(End, waited(hand))
    assert (end.status, end.exit_code, end.totals.dead_ranks) == ("degraded", 0, (1, 2))


def test_a_save_of_which_nothing_is_heard_after_its_rank_has_left_is_done_by_the_next() -> None:
    hand = at_the_end(num_ranks=2)
    hand.tell(Goodbye(at=hand.later(), rank=0))
    assert hand.said == ()
    said = waited(hand)
    assert "nothing was heard of it in time" in only(Alert, said).text
    assert only(Finish, said).callbacks == ("save",)
    assert only(End, hand.goodbye(1)).status == "done"


def test_a_person_in_a_debugger_has_all_the_time_there_is() -> None:
    hand = at_the_end(num_ranks=1, debug=DebugConfig(inprocess=True))
    assert hand.coordinator.deadline is None
