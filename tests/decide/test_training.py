"""Rounds: ordered, reported, averaged, accepted, once each, and nothing stale is counted."""

from __future__ import annotations

import msgspec
import pytest

from flodl.decide.ledger import take_batches
from flodl.decide.messages import (
    Alert,
    Average,
    AveragingDone,
    CallbackResult,
    Cut,
    EpochEnded,
    Finish,
    RunWindow,
)
from flodl.spec.guard import MsfGuardConfig
from flodl.spec.job import EvalConfig, TrainerConfig
from tests.decide.hands import Hand, only


def started(mode: str = "cpu_cadence", num_ranks: int = 2, **blocks: object) -> Hand:
    hand = Hand(mode, num_ranks, **blocks)  # type: ignore[arg-type]
    hand.start()
    return hand


def test_a_round_is_averaged_when_all_have_reported_with_weights_by_samples() -> None:
    hand = started()
    assert hand.done(0) == ()
    order = only(Average, hand.done(1))
    assert (order.to, order.round, order.masses, order.consensus) == ((0, 1), 1, (100.0, 100.0), False)


@pytest.mark.parametrize(
    ("gamma", "masses"), [(1.0, (10.0, 0.0)), (0.5, (10.0**0.5, 0.0)), (0.0, (1.0, 0.0)), (-1.0, (0.1, 0.0))]
)
def test_a_rank_that_did_not_move_has_no_vote_whatever_gamma_is(gamma: float, masses: tuple[float, ...]) -> None:
    hand = started(num_samples=10, elche={"gamma": gamma})
    hand.done(0)
    assert only(Average, hand.done(1)).masses == pytest.approx(masses)


def test_a_tail_rank_with_nothing_to_run_does_not_block_the_round() -> None:
    hand = started(num_samples=10)
    assert hand.orders[1].rounds[0].batches == 0
    hand.round()
    assert hand.coordinator.view().rounds == 1


def test_a_round_is_accepted_when_all_hold_its_result_and_the_next_is_ordered_at_once() -> None:
    hand = started()
    hand.done(0)
    hand.done(1)
    assert hand.averaged(1) == ()
    said = hand.averaged(0)
    assert [command.to for command in said if isinstance(command, RunWindow)] == [(0,), (1,)]
    assert hand.orders[0].rounds[0].number == 2
    assert hand.coordinator.view().samples_done == 200


def test_the_first_readings_already_plan_adapted_quotas() -> None:
    hand = started()
    hand.round(ms=[10.0, 25.0])
    assert [hand.orders[rank].rounds[0].batches for rank in (0, 1)] == [25, 10]
    assert "10 on rank 1 at 25 ms per batch" in hand.orders[0].reason


def test_doubled_and_stale_reports_are_not_counted() -> None:
    hand = started()
    stale = hand.report(0)
    hand.done(0)
    assert hand.tell(stale) == (), "twice"
    hand.done(1)
    hand.averaged(0)
    assert hand.averaged(0) == (), "twice"
    hand.averaged(1)
    assert hand.tell(stale) == (), "of an older round"
    assert hand.averaged(0, round=1) == ()
    assert hand.averaged(0, generation=7) == ()
    assert hand.coordinator.view().samples_done == 200


def test_a_report_ahead_of_its_round_or_of_nobody_changes_nothing() -> None:
    hand = started()
    assert hand.done(0, round=2) == ()
    assert hand.averaged(0) == (), "nothing was averaged yet"
    assert hand.tell(msgspec.structs.replace(hand.report(0), rank=5)) == ()


def test_reports_before_the_start_change_nothing() -> None:
    hand = Hand()
    other = started()
    assert hand.tell(other.report(0)) == ()
    early = AveragingDone(at=0.0, rank=0, generation=1, round=1, divergence=0.0, exposed_ms=0.0, duration_ms=0.0)
    assert hand.tell(early) == ()


def test_samples_that_do_not_fit_the_batches_are_told() -> None:
    hand = started()
    alert = only(Alert, hand.done(0, samples=3))
    assert alert.text == "rank 0 (cpu of here) reports 3 samples, its 10 batches hold 100"


def test_an_overshoot_belongs_to_the_next_window_and_the_plan_follows_what_was_run() -> None:
    hand = started("cpu_async")
    assert hand.orders[0].max_overshoot == 3
    assert hand.orders[0].rounds[0].batches == 10
    hand.round()
    held = hand.orders[0].ranges
    hand.done(0, batches=12)  # it was past the planned point when the order came
    order = only(Average, hand.done(1))
    assert order.masses == (120.0, 100.0)
    for rank in (0, 1):
        hand.averaged(rank)
    assert hand.orders[0].ranges[0] == take_batches(held, 12, 10)[1][0]
    assert hand.orders[0].rounds[0].samples_before == 200 + 220


def test_the_runs_last_round_adopts_the_consensus_and_holds_nothing_ahead() -> None:
    hand = started("cpu_async", num_samples=200, trainer=TrainerConfig(num_epochs=1, batch_size=10))
    assert {order.max_overshoot for order in hand.orders.values()} == {0}
    hand.done(0)
    order = only(Average, hand.done(1))
    assert order.consensus
    assert order.reason.endswith("the run's last")


def test_an_epoch_ends_at_the_acceptance_of_its_last_round_and_is_no_barrier() -> None:
    hand = started(num_samples=200)
    said = hand.round()
    metrics = only(EpochEnded, said).metrics
    assert (metrics.epoch, metrics.samples, metrics.loss, metrics.rounds, metrics.eval) == (0, 200, 0.5, 1, {})
    assert [share.batch_share for share in metrics.ranks] == [0.5, 0.5]
    assert {order.epoch for order in hand.orders.values()} == {1}


def test_an_evaluation_goes_with_the_first_window_after_its_epoch_and_its_time_is_slack() -> None:
    hand = started(num_samples=200, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    hand.round(ms=[10.0, 10.0])
    assert (hand.orders[0].callbacks, hand.orders[1].callbacks) == (("eval",), ())
    result = CallbackResult(name="eval", ok=True, values={"accuracy": 0.7}, seconds=0.05)
    hand.done(0, callbacks=(result,), callback_ms=50.0)
    hand.done(1)
    hand.averaged(0)
    hand.averaged(1)
    assert hand.coordinator.view().eval == {"accuracy": 0.7}
    assert hand.orders[0].callbacks == ("eval",)
    assert [hand.orders[rank].rounds[0].batches for rank in (0, 1)] == [5, 10], "5 batches of 10 ms less"


def test_a_failed_evaluation_is_told_and_training_goes_on() -> None:
    hand = started(num_samples=200)
    hand.round()
    said = hand.done(0, callbacks=(CallbackResult(name="eval", ok=False, error="no memory"),))
    assert "the evaluation of epoch 1 failed: no memory" in only(Alert, said).text
    assert only(Average, hand.done(1))


def test_without_evaluation_no_window_carries_one() -> None:
    hand = started(num_samples=200, eval=EvalConfig(every_epochs=None, at_end=False))
    hand.round()
    assert hand.orders[0].callbacks == ()
    assert only(Finish, hand.round()).callbacks == ("save",)


def test_every_second_epoch_is_evaluated_when_asked() -> None:
    trainer = TrainerConfig(num_epochs=4, batch_size=10)
    hand = started(num_samples=200, eval=EvalConfig(every_epochs=2), trainer=trainer)
    hand.round()
    assert hand.orders[0].callbacks == ()
    hand.round()
    assert hand.orders[0].callbacks == ("eval",)


def test_a_contribution_that_is_not_finite_is_told_with_rank_round_and_parameter() -> None:
    hand = started()
    hand.done(0)
    hand.done(1)
    hand.averaged(0)
    alert = only(Alert, hand.averaged(1, nonfinite="head.weight"))
    assert alert.rank == 1
    assert alert.text.startswith("round 1: head.weight of rank 1 (cpu of here) is not finite")


def test_too_many_rounds_in_a_row_that_are_not_finite_end_the_run_after_a_save() -> None:
    hand = started()
    for number in range(3):
        hand.done(0)
        hand.done(1)
        hand.averaged(0, nonfinite="head.weight")
        hand.averaged(1)
        assert hand.coordinator.view().activity == ("finishing" if number == 2 else "training")
    assert only(Finish, hand.said).callbacks == ("eval", "save")
    hand.goodbye(0)
    end = hand.goodbye(1)[-1]
    assert (end.status, end.exit_code) == ("failed", 4)  # type: ignore[union-attr]
    assert "not finite in 3 rounds in a row" in end.reason


def test_a_finite_round_in_between_starts_the_count_again() -> None:
    hand = started()
    for bad in ("x", "x", "", "x", "x"):
        hand.done(0)
        hand.done(1)
        hand.averaged(0, nonfinite=bad)
        hand.averaged(1)
    assert hand.coordinator.view().activity == "training"


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_a_stop_cuts_the_windows_that_are_under_way_and_averages_them(mode: str) -> None:
    hand = started(mode)
    hand.done(0)
    cut = only(Cut, hand.stop("SIGTERM"))
    assert cut.to == (1,)
    assert hand.stop("SIGTERM") == (), "a second request is not a second cut"
    order = only(Average, hand.done(1, batches=4))
    assert (order.masses, order.consensus) == ((100.0, 40.0), True)
    hand.averaged(0)
    finish = only(Finish, hand.averaged(1))
    assert finish.reason == "SIGTERM"
    hand.goodbye(0)
    end = hand.goodbye(1)[-1]
    assert (end.status, end.exit_code) == ("interrupted", 75)  # type: ignore[union-attr]
    assert end.totals.samples_done == 140  # type: ignore[union-attr]


def test_a_stop_while_a_round_is_averaged_waits_for_its_result() -> None:
    hand = started()
    hand.done(0)
    hand.done(1)
    assert hand.stop() == ()
    hand.averaged(0)
    assert only(Finish, hand.averaged(1))


def test_a_stop_in_a_grant_is_obeyed_at_its_edge() -> None:
    hand = started("cpu_sync")
    assert hand.stop() == ()
    hand.done(0)
    assert only(Finish, hand.done(1))


def test_a_stop_rule_ends_as_stopped_with_exit_code_0() -> None:
    hand = started()
    hand.stop("stop.max_time is reached", status="stopped")
    hand.round(batches=2)
    hand.goodbye(0)
    end = hand.goodbye(1)[-1]
    assert (end.status, end.exit_code) == ("stopped", 0)  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------------- grants


def test_the_first_grant_is_one_round_and_later_ones_take_about_a_second() -> None:
    hand = started("cpu_sync", num_samples=40_000)
    sizes = [len(hand.orders[0].rounds)]
    for _ in range(5):
        hand.now += 0.010 * sizes[-1]
        hand.round(ms=[10.0, 10.0])
        sizes.append(len(hand.orders[0].rounds))
    assert sizes[0] == 1
    assert sizes[1] == 4, "at most four times the one before"
    assert 60 <= sizes[-1] <= 120


def test_a_grant_is_accepted_by_the_report_of_all_and_needs_no_average() -> None:
    hand = started("cpu_sync")
    assert hand.orders[0].alone
    assert hand.orders[0].max_overshoot == 0
    hand.done(0)
    said = hand.done(1)
    assert not [command for command in said if isinstance(command, Average)]
    assert hand.orders[0].rounds[0].number == 2


def test_gradients_in_a_cadence_mode_are_one_round_per_grant() -> None:
    hand = started(elche={"average": "gradients"})
    for _ in range(3):
        order = hand.orders[0]
        assert order.alone
        assert len(order.rounds) == 1
        hand.round()


def test_sync_with_a_proportional_split_keeps_both_ranks_busy() -> None:
    hand = started("cpu_sync", elche={"split": "proportional"}, num_samples=40_000)
    for _ in range(4):
        hand.round(ms=[10.0, 25.0])
    assert {one.batches for one in hand.orders[0].rounds} == {3}
    assert {one.batches for one in hand.orders[1].rounds} == {1}


def test_a_nonfinite_contribution_inside_a_grant_is_told_too() -> None:
    hand = started("cpu_sync")
    hand.done(0, nonfinite="head.weight")
    assert "head.weight of rank 0" in only(Alert, hand.done(1)).text


# --------------------------------------------------------------------------------------------------- one device


def test_one_device_trains_through_the_same_loop_without_averaging() -> None:
    hand = started(num_ranks=1)
    order = hand.orders[0]
    assert order.alone
    assert "one device" in order.reason
    hand.now += 0.01
    hand.round()
    assert hand.orders[0].rounds[0].batches == 4
    assert len(hand.orders[0].rounds) == 1


def test_one_device_with_gradients_steps_after_every_batch() -> None:
    hand = started("cpu_sync", num_ranks=1)
    hand.now += 0.01
    hand.round()
    assert [one.batches for one in hand.orders[0].rounds] == [1, 1, 1, 1]


def test_after_a_nudge_everybody_adopts_the_consensus() -> None:
    hand = started(guard=MsfGuardConfig(nudge_sustain=1), num_samples=40_000)
    orders: list[Average] = []
    for divergence in (1e-4, 2e-4, 4e-4):
        hand.done(0)
        orders.append(only(Average, hand.done(1)))
        for rank in (0, 1):
            hand.averaged(rank, divergence=divergence)
    assert [order.consensus for order in orders] == [False, False, True]
    assert "after a nudge" in orders[-1].reason
