"""Round acceptance: after a death a contribution counts wholly or not at all, the same on every survivor."""

from __future__ import annotations

import pytest

from flodl.decide.messages import (
    Alert,
    Average,
    CallbackResult,
    Cut,
    End,
    Finish,
    FormGroup,
    RunWindow,
    SaveBegun,
)
from flodl.spec.job import MembershipConfig, TrainerConfig
from flodl.spec.stop import StopConfig, TargetConfig
from tests.decide.hands import Hand, leave, only


def three(mode: str = "cpu_cadence", **blocks: object) -> Hand:
    hand = Hand(mode, 3, **blocks)  # type: ignore[arg-type]
    hand.start()
    return hand


def test_a_death_is_told_and_the_survivors_form_the_next_generation() -> None:
    hand = three()
    said = hand.died(1)
    assert only(Alert, said).text == "rank 1 (cpu of here) died: killed by SIGKILL"
    group = only(FormGroup, said)
    assert (group.to, group.ranks, group.generation, group.source) == ((0, 2), (0, 2), 2, None)
    assert hand.died(1) == (), "one death, one event"
    assert hand.failed(1, "step") == ()


def test_a_window_that_is_under_way_goes_on_and_is_averaged_without_the_dead() -> None:
    hand = three()
    hand.done(0)
    hand.died(1)
    assert hand.formed(0) == ()
    assert hand.formed(2) == (), "rank 2 has not reported yet"
    order = only(Average, hand.done(2))
    assert (order.to, order.generation, order.masses) == ((0, 2), 2, (100.0, 100.0))
    for rank in (0, 2):
        hand.averaged(rank)
    assert hand.coordinator.view().samples_done == 200


def test_a_report_that_was_sent_before_the_new_group_still_counts() -> None:
    hand = three()
    hand.died(1)
    hand.done(0, generation=1)
    hand.done(2, generation=1)
    hand.formed(0)
    assert only(Average, hand.formed(2)).to == (0, 2)


def test_nobody_holds_the_round_so_the_survivors_repeat_it_and_the_dead_ranks_work_is_owed_again() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    hand.died(2)
    hand.formed(0, last_round=0)
    order = only(Average, hand.formed(1, last_round=0))
    assert (order.round, order.generation, order.masses) == (1, 2, (100.0, 100.0))
    assert hand.averaged(0, generation=1) == (), "of the abandoned averaging"
    hand.averaged(0)
    hand.averaged(1)
    assert hand.coordinator.view().samples_done == 200


def test_all_survivors_hold_the_round_so_it_counts_with_the_dead_ranks_work_in_it() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    hand.averaged(0)
    hand.died(2)
    hand.formed(0, last_round=1)
    said = hand.formed(1, last_round=1)
    assert [command.to for command in said if isinstance(command, RunWindow)] == [(0,), (1,)]
    assert hand.coordinator.view().samples_done == 300


def test_one_survivor_holds_the_round_so_the_others_adopt_its_state() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    hand.died(2)
    hand.formed(0, last_round=0)
    group = only(FormGroup, hand.formed(1, last_round=1))
    assert (group.source, group.accept_round, group.generation, group.ranks) == (1, 1, 3, (0, 1))
    assert "rank 1 (cpu of here) holds round 1, so it counts; rank 0" in group.reason
    assert hand.formed(0, last_round=1, generation=2) == (), "of the generation before"
    hand.formed(0, last_round=1)
    hand.formed(1, last_round=1)
    assert hand.coordinator.view().samples_done == 300
    assert hand.orders[0].rounds[0].number == 2


def test_a_second_death_during_recovery_begins_it_again_with_the_present_set() -> None:
    hand = Hand(num_ranks=4)
    hand.start()
    for rank in range(4):
        hand.done(rank)
    hand.died(3)
    hand.formed(0, last_round=1)
    group = only(FormGroup, hand.died(2))
    assert (group.generation, group.ranks) == (3, (0, 1))
    assert hand.formed(1, last_round=0, generation=2) == ()
    hand.formed(1, last_round=0)
    assert only(FormGroup, hand.formed(0, last_round=1)).source == 0


def test_the_source_dies_while_it_repairs_so_whoever_adopted_the_round_is_asked_next() -> None:
    hand = three()
    for rank in range(3):
        hand.done(rank)
    hand.died(2)
    hand.formed(0, last_round=1)
    hand.formed(1, last_round=0)
    hand.died(0)
    order = only(Average, hand.formed(1, last_round=0))
    assert order.to == (1,), "nobody who lives holds round 1: it is repeated"
    hand.averaged(1)
    assert hand.coordinator.view().samples_done == 100


def test_a_lone_survivor_goes_on() -> None:
    hand = Hand(num_ranks=2, num_samples=200, trainer=TrainerConfig(num_epochs=1, batch_size=10))
    hand.start()
    hand.died(0)
    hand.formed(1)
    while not any(isinstance(command, Finish) for command in hand.said):
        hand.done(1)
        hand.averaged(1)
    end = only(End, hand.goodbye(1))
    assert (end.status, end.exit_code, end.totals.dead_ranks) == ("degraded", 0, (0,))
    assert end.totals.samples_done == 200
    assert "rank 0 (cpu of here): killed by SIGKILL" in end.reason


def test_a_lone_survivor_under_nccl_saves_and_ends_the_run() -> None:
    hand = _nccl()
    group = only(FormGroup, hand.died(0))
    assert (group.to, group.ranks) == ((1,), (1,)), "nobody else is waited for"
    finish = only(Finish, hand.formed(1))
    assert (finish.to, finish.callbacks[-1]) == ((1,), "save")
    assert only(SaveBegun, hand.said).why == "single_survivor"
    end = only(End, hand.goodbye(1))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "NCCL cannot go on alone" in end.reason
    assert end.reason.startswith("rank 0 (cpu of here): killed by SIGKILL")


def _nccl() -> Hand:
    hand = Hand("nccl_cadence", 2)
    hand.start()
    return hand


@pytest.mark.parametrize(("max_failure", "ends_at"), [(1, 1), (2, 2), ("60%", 2)])
def test_max_failure_saves_and_ends_the_run_and_the_first_cause_is_named(max_failure: int | str, ends_at: int) -> None:
    hand = three(membership=MembershipConfig(max_failure=max_failure))
    for number in range(1, ends_at + 1):
        groups = [command for command in hand.died(number - 1, f"cause {number}") if isinstance(command, FormGroup)]
        assert all(len(group.ranks) == 1 for group in groups) == (number == ends_at)
    for rank in range(ends_at, 3):
        hand.formed(rank)
    assert only(SaveBegun, hand.said).why == "max_failure_exceeded"
    end = leave(hand)
    assert (end.status, end.exit_code) == ("failed", 4)
    assert end.reason.startswith("rank 0 (cpu of here): cause 1")
    assert "membership.max_failure is" in end.reason


def test_nobody_is_left_to_save() -> None:
    hand = three()
    for rank in range(3):
        hand.died(rank)
    end = only(End, hand.said)
    assert (end.status, end.exit_code) == ("failed", 5)
    assert end.reason == "rank 0 (cpu of here): killed by SIGKILL (no rank is left)"


def test_at_the_end_the_newest_round_that_anybody_holds_counts_and_its_holder_saves() -> None:
    hand = three(membership=MembershipConfig(max_failure=1))
    for rank in range(3):
        hand.done(rank, ms=(1.0, 50.0, 100.0)[rank])
    hand.averaged(1)
    hand.died(2)
    hand.formed(0, last_round=0)
    said = hand.formed(1, last_round=1)
    assert hand.coordinator.view().samples_done == 300, "the dead rank's work is in it"
    assert only(Finish, said).to == (1,), "the faster one lacks it"
    assert (only(SaveBegun, said).rank, only(SaveBegun, said).round) == (1, 1)


def test_at_the_end_a_window_under_way_is_not_waited_for() -> None:
    hand = three(membership=MembershipConfig(max_failure=1))
    hand.round()
    hand.done(0)
    hand.died(2)
    for rank in (0, 1):
        hand.formed(rank, last_round=1)
    assert only(SaveBegun, hand.said).round == 1
    assert hand.coordinator.view().samples_done == 300


def test_a_death_on_the_way_to_the_last_save_asks_the_others_again() -> None:
    hand = three(membership=MembershipConfig(max_failure=1))
    hand.died(2, "the first cause")
    hand.formed(0)
    (group,) = [command for command in hand.died(1, "another") if isinstance(command, FormGroup)]
    assert (group.generation, group.ranks) == (3, (0,))
    hand.formed(0)
    assert leave(hand).reason.startswith("rank 2 (cpu of here): the first cause")


def test_a_step_that_raises_is_a_death_with_the_ranks_own_words() -> None:
    hand = three(membership=MembershipConfig(max_failure=1))
    hand.failed(2, "step", "ValueError: bad batch")
    assert hand.died(2, "exit 1") == (), "one event per rank"
    for rank in (0, 1):
        hand.formed(rank)
    assert leave(hand).reason.startswith("rank 2 (cpu of here): ValueError: bad batch")


def test_who_loses_contact_because_another_died_is_told_as_a_consequence() -> None:
    hand = three()
    assert only(Alert, hand.failed(1, "contact", "nobody answers")).reason == "the others go on with its work"
    told = only(Alert, hand.failed(0, "contact", "nobody answers"))
    assert told.reason == "a consequence of the first death: rank 1 (cpu of here): nobody answers"


def test_an_evaluation_that_dies_with_its_rank_is_told() -> None:
    hand = three(num_samples=300)
    hand.round()
    assert hand.orders[0].callbacks == ("eval",)
    said = hand.died(0)
    assert "the evaluation of epoch 1 is lost with rank 0" in [c.text for c in said if isinstance(c, Alert)]


def test_a_stop_during_recovery_cuts_what_is_still_running() -> None:
    hand = three()
    hand.done(0)
    hand.died(1)
    assert hand.stop() == ()
    hand.formed(0)
    assert only(Cut, hand.formed(2)).to == (2,)
    assert only(Average, hand.done(2, batches=3)).consensus


def test_rounds_of_a_grant_that_everybody_finished_are_accepted_and_the_rest_is_dealt_again() -> None:
    hand = three("cpu_sync")
    hand.now += 0.01
    hand.round()
    assert [one.number for one in hand.orders[0].rounds] == [2, 3, 4, 5]
    hand.died(2)
    hand.formed(0, last_round=3)
    said = hand.formed(1, last_round=3)
    assert [command.to for command in said if isinstance(command, RunWindow)] == [(0,), (1,)]
    assert hand.orders[0].rounds[0].number == 4
    assert hand.coordinator.view().samples_done == 30 + 2 * 30, "the dead rank's part of rounds 2 and 3 counts"


def test_a_grant_whose_first_round_nobody_finished_is_dealt_again() -> None:
    hand = three("cpu_sync")
    hand.round()
    hand.died(2)
    hand.formed(0, last_round=1)
    hand.formed(1, last_round=1)
    assert hand.orders[0].rounds[0].number == 2
    assert hand.coordinator.view().samples_done == 30


def test_a_grants_report_of_an_older_generation_is_not_counted() -> None:
    hand = three("cpu_sync")
    hand.round()
    late = hand.report(1)
    hand.died(2)
    assert hand.tell(late) == ()


def test_what_was_evaluated_in_a_grant_counts_whatever_becomes_of_the_grant() -> None:
    target = TargetConfig(metric="accuracy", value=0.5)
    hand = three("cpu_sync", num_samples=30, stop=StopConfig(target=target))
    hand.round()
    assert hand.orders[0].callbacks == ("eval",)
    judged = CallbackResult(name="eval", ok=True, values={"accuracy": 0.5}, epoch=0)
    late = hand.report(0, callbacks=(judged,), notes=("a word",))
    hand.died(2)
    texts = [command.text for command in hand.tell(late) if isinstance(command, Alert)]
    assert texts == ["rank 0 (cpu of here): a word", "stopping: stop.target: accuracy 0.5 has reached 0.5"]
    hand.formed(0, last_round=1)
    assert only(Finish, hand.formed(1, last_round=1)).reason.startswith("stop.target")


def test_a_dead_rank_that_had_finished_more_than_the_survivors_is_not_believed() -> None:
    hand = three("cpu_sync")
    hand.now += 0.01
    hand.round()
    hand.done(2)  # rounds 2 to 5
    hand.died(2)
    hand.formed(0, last_round=4)
    hand.formed(1, last_round=4)
    assert hand.orders[0].rounds[0].number == 5
    assert hand.coordinator.view().samples_done == 30 + 3 * 30


def test_survivors_of_a_grant_that_hold_different_rounds_are_repaired() -> None:
    hand = three("cpu_sync")
    hand.now += 0.01
    hand.round()
    hand.died(2)
    hand.formed(0, last_round=3)
    group = only(FormGroup, hand.formed(1, last_round=2))
    assert (group.source, group.accept_round) == (0, 3)
    hand.formed(0, last_round=3)
    hand.formed(1, last_round=3)
    assert hand.orders[1].rounds[0].number == 4
