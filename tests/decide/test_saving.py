"""Saves on the way: when one is due, beside training, moved on after a failure, one accepted round each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flodl.decide.messages import Alert, BundleKept, End, Finish, Resumed, RunWindow, SaveBegun, TimeReached
from flodl.decide.mind import State
from flodl.decide.resuming import job_problems
from flodl.spec.checkpoint import BestConfig, CheckpointConfig
from flodl.spec.job import TrainerConfig
from tests.decide.hands import Hand, only


def saving(**config: Any) -> Hand:
    """Epochs of one window of each of two ranks."""
    trainer = TrainerConfig(num_epochs=9, batch_size=10)
    hand = Hand(num_samples=200, checkpoint=CheckpointConfig(**config), trainer=trainer)
    hand.start()
    return hand


def begun(hand: Hand) -> list[SaveBegun]:
    return [command for command in hand.said if isinstance(command, SaveBegun)]


def rounds_until_save(hand: Hand, most: int = 20) -> int:
    for number in range(1, most + 1):
        hand.round()
        if begun(hand):
            return number
    raise AssertionError(f"no save in {most} rounds")


def test_a_save_goes_with_the_first_window_after_its_epoch_and_training_does_not_wait() -> None:
    hand = saving()
    rounds_until_save(hand)
    (save,) = begun(hand)
    windows = [command for command in hand.said if isinstance(command, RunWindow)]
    assert [("save" in window.callbacks) for window in windows] == [window.to == (save.rank,) for window in windows]
    assert hand.said.index(save) < hand.said.index(windows[0])
    assert (save.why, save.round, save.evaluates) == ("checkpoint", windows[0].rounds[0].number - 1, True)
    hand.round()
    assert not hand.coordinator.over


def test_what_is_kept_is_the_state_of_exactly_the_accepted_round() -> None:
    hand = saving()
    rounds_until_save(hand)
    (save,) = begun(hand)
    state = msgspec.convert(hand.coordinator.fixed["state"], State, str_keys=True)
    assert state.accepted == save.round
    assert state.ledger.trained == {}
    assert state.ledger.audit() == (0, 0)
    travelled = msgspec.json.decode(msgspec.json.encode(hand.coordinator.fixed))
    assert msgspec.convert(travelled["state"], State, str_keys=True) == state
    fixed = hand.coordinator.fixed
    hand.round()
    assert hand.coordinator.fixed is fixed


def test_every_second_epoch_where_the_job_says_so() -> None:
    assert rounds_until_save(saving(every_epochs=2)) > rounds_until_save(saving())


def test_by_the_clock_at_the_next_averaging() -> None:
    hand = saving(every_epochs=None, every_minutes=1.0)
    hand.round()
    assert not begun(hand)
    hand.now += 60.0
    hand.round()
    assert begun(hand)[0].why == "checkpoint"


def test_one_save_at_a_time() -> None:
    hand = saving()
    rounds_until_save(hand)
    for _ in range(6):
        hand.round()
        assert not begun(hand)
    hand.kept()
    hand.round()
    assert begun(hand)


def test_a_save_that_failed_is_tried_by_the_next_rank_and_then_only_when_it_is_due() -> None:
    hand = saving()
    rounds_until_save(hand)
    first = begun(hand)[0].rank
    assert "disk full" in only(Alert, hand.kept("disk full")).text
    hand.round()
    assert begun(hand)[0].rank == 1 - first
    said = hand.kept("disk full")
    assert "all ranks have tried" in only(Alert, said).reason
    assert not hand.coordinator.over


def test_word_of_another_save_changes_nothing() -> None:
    hand = saving()
    rounds_until_save(hand)
    assert hand.tell(BundleKept(at=hand.later(), rank=7, round=99)) == ()


def test_a_saver_that_dies_leaves_the_save_to_the_others() -> None:
    hand = saving()
    rounds_until_save(hand)
    saver = begun(hand)[0].rank
    hand.died(saver)
    hand.formed(1 - saver, last_round=begun_round(hand))
    for _ in range(4):
        if begun(hand):
            break
        hand.round()
    assert begun(hand)[0].rank == 1 - saver


@pytest.mark.parametrize("ends_by", ["another save", "the saver's death"])
def test_a_bundle_that_is_there_late_counts_although_nobody_waits_for_it_any_more(ends_by: str) -> None:
    """On a slow disk. The run fails then, and there is something to go on from."""
    hand = saving()
    rounds_until_save(hand)
    first = begun(hand)[0]
    if ends_by == "another save":
        hand.stop(status="stopped")
        hand.round()
        assert begun(hand)[0].round > first.round
    else:
        hand.died(first.rank)
    assert hand.tell(BundleKept(at=hand.later(), rank=first.rank, round=first.round)) == ()
    for rank in hand.alive:
        hand.died(rank)
    newest = hand.save
    if newest is not None and newest is not first:
        hand.tell(BundleKept(at=hand.later(), rank=newest.rank, round=newest.round, error="it is gone"))
    end = only(End, hand.said)
    assert (end.status, end.exit_code) == ("failed", 4)


@pytest.mark.parametrize(("error", "code"), [("", 4), ("it is gone", 5)])
def test_where_all_are_lost_while_a_bundle_is_on_its_way_the_end_waits_for_word_of_it(error: str, code: int) -> None:
    hand = saving()
    rounds_until_save(hand)
    save = begun(hand)[0]
    hand.died(1 - save.rank)
    assert not [command for command in hand.died(save.rank) if isinstance(command, End)]
    end = only(End, hand.tell(BundleKept(at=hand.later(), rank=save.rank, round=save.round, error=error)))
    assert (end.status, end.exit_code) == ("failed", code)
    assert end.reason.endswith("(no rank is left)")


def begun_round(hand: Hand) -> int:
    assert hand.save is not None
    return hand.save.round


def test_an_evaluation_is_worth_a_bundle_where_the_best_are_kept() -> None:
    hand = saving(every_epochs=None, best=BestConfig(metric="accuracy"))
    rounds_until_save(hand)
    assert begun(hand)[0].why == "best"
    for _ in range(6):  # more evaluations while it is under way: what could be saved after it are other weights
        hand.round()
        assert not begun(hand)
    hand.kept()
    rounds_until_save(hand)
    assert (begun(hand)[0].why, begun(hand)[0].evaluates) == ("best", True)


@pytest.mark.parametrize(("status", "why"), [("interrupted", "interrupted"), ("stopped", "graceful_shutdown")])
def test_the_last_save_says_why_the_run_ended(status: Any, why: str) -> None:
    hand = saving(every_epochs=None)
    hand.stop(status=status)
    hand.round()
    assert begun(hand)[0].why == why


def test_the_others_wait_until_the_bundle_is_in_place() -> None:
    hand = saving(every_epochs=None)
    hand.stop()
    hand.round()
    saver = only(Finish, hand.said).to[0]
    names = hand.finishes.pop(saver)
    assert "save" in names.callbacks
    assert hand.goodbye(saver) == ()
    assert only(Finish, hand.kept()).to == (1 - saver,)
    end = only(End, hand.goodbye(1 - saver))
    assert (end.status, end.exit_code) == ("interrupted", 75)


def test_an_interrupted_run_whose_last_save_failed_goes_on_from_an_earlier_bundle() -> None:
    hand = saving()
    rounds_until_save(hand)
    hand.kept()
    hand.stop()
    hand.round()
    hand.goodbye(only(Finish, hand.said).to[0], failed=["save"])
    hand.goodbye(only(Finish, hand.said).to[0], failed=["save"])
    end = hand.said[-1]
    assert isinstance(end, End)
    assert (end.status, end.exit_code) == ("interrupted", 75)
    assert "the newest bundle that is whole" in end.reason


# --------------------------------------------------------------------------------------------------- going on


def steps(mode: str) -> TrainerConfig:
    """Three epochs; sync modes in short grants."""
    return TrainerConfig(num_epochs=3, batch_size=10, deterministic=mode.endswith("sync"))


def stopped(mode: str = "cpu_cadence", **blocks: Any) -> tuple[Hand, dict[str, Any], int]:
    """A run that was stopped in its second epoch: hand, what its bundle holds, and the round."""
    hand = Hand(mode, num_samples=2000, trainer=steps(mode), **blocks)
    hand.start()
    while hand.coordinator.view().samples_done < 2740:
        hand.round(ms=[10.0, 20.0])
    hand.stop()
    hand.round(ms=[10.0, 20.0])
    return hand, hand.coordinator.fixed, begun(hand)[0].round


def goes_on(snapshot: dict[str, Any], round_: int, mode: str = "cpu_cadence", **blocks: Any) -> Hand:
    blocks.setdefault("num_samples", 2000)
    hand = Hand(mode, trainer=steps(mode), **blocks)
    kept = msgspec.json.decode(msgspec.json.encode(snapshot))
    hand.tell(Resumed(at=hand.later(), round=round_, origin="a/model.r9.meta.json", snapshot=kept))
    hand.start()
    return hand


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_sync", "cpu_async"])
def test_the_same_ranks_get_back_what_they_held_and_the_stored_quotas(mode: str) -> None:
    _, snapshot, number = stopped(mode)
    hand = goes_on(snapshot, number, mode)
    held = snapshot["state"]["ledger"]["held"]
    for rank in (0, 1):
        window = hand.orders[rank]
        mine = held[str(rank)]
        assert window.ranges[0].start == mine[0][1] if mine else True
        assert window.rounds[0].number == number + 1
        if mode != "cpu_sync":
            assert window.rounds[0].batches == snapshot["pace"]["elche"]["base"][str(rank)]
    while not hand.coordinator.over and any(isinstance(c, RunWindow) for c in hand.said):
        hand.round(ms=[10.0, 20.0])
    hand.goodbye(only(Finish, hand.said).to[0])
    end = only(End, hand.goodbye(only(Finish, hand.said).to[0]))
    assert (end.status, end.totals.samples_done) == ("done", 6000)


def test_other_ranks_get_the_same_work_dealt_anew() -> None:
    _, snapshot, number = stopped()
    hand = goes_on(snapshot, number, num_ranks=3)
    assert "dealt anew" in only(Alert, hand.said[:1]).reason
    assert hand.coordinator.view().samples_done == snapshot["state"]["ledger"]["samples_done"]
    while any(isinstance(c, RunWindow) for c in hand.said):
        hand.round(ms=[10.0, 20.0, 20.0])
    assert hand.coordinator.view().samples_done == 6000


def reports(hand: Hand) -> int:
    """Samples that ranks train until all is done."""
    total = 0
    while any(isinstance(c, RunWindow) for c in hand.said):
        before = hand.coordinator.view().samples_done
        trained = sum(hand.report(rank, ms=[10.0, 20.0][rank]).samples for rank in hand.alive)
        hand.round(ms=[10.0, 20.0])
        assert hand.coordinator.view().samples_done == before + trained, "what counts is what was trained"
        total += trained
    return total


def test_what_was_trained_for_a_round_that_nobody_holds_is_trained_again_where_the_run_goes_on() -> None:
    hand = Hand(num_samples=2000, trainer=steps("cpu_cadence"))
    hand.start()
    hand.round(ms=[10.0, 20.0])
    accepted = hand.coordinator.view().samples_done
    for rank in (0, 1):
        hand.done(rank)
    hanging = hand.coordinator.snapshot()
    assert hanging["state"]["ledger"]["trained"]
    hand.tell(TimeReached(at=hand.later(1000.0 * (hand.coordinator.deadline or 0.0))))
    for rank in (0, 1):
        hand.formed(rank, last_round=1)
    (save,) = begun(hand)
    assert (save.round, save.why) == (1, "reduce_stall")
    assert not hand.coordinator.fixed["state"]["ledger"]["trained"]
    for snapshot in (hand.coordinator.fixed, hanging):  # the second as older versions have saved it
        again = goes_on(snapshot, 1)
        assert again.coordinator.view().samples_done == accepted
        assert reports(again) == 6000 - accepted


def test_other_data_is_refused() -> None:
    _, snapshot, number = stopped()
    hand = Hand(trainer=steps("cpu_cadence"), num_samples=3000)
    hand.tell(Resumed(at=hand.later(), round=number, origin="a/model.r9.meta.json", snapshot=snapshot))
    hand.ready(0)
    end = only(End, hand.ready(1))
    assert (end.status, end.exit_code) == ("failed", 2)
    assert "dataset: is another one: the bundle was saved with samples 2000, this has 3000" in end.reason


def test_another_seed_and_a_run_that_is_done_are_refused_before_anything_is_started() -> None:
    hand, snapshot, _ = stopped()
    job = hand.job.replace(trainer=hand.job.trainer.replace(seed=4, num_epochs=1))
    first, second = job_problems(job, snapshot)
    assert (first.key, first.constraint) == ("trainer.seed", "the bundle was saved with 0")
    assert (second.key, second.constraint) == ("trainer.num_epochs", "nothing is left to do: 1 epoch is done")


@pytest.mark.parametrize(("asked", "enough"), [(1, 8), (7, 14)])
def test_who_asks_for_fewer_epochs_than_are_done_is_told_how_many_are_and_a_number_beyond(
    asked: int, enough: int
) -> None:
    hand, snapshot, _ = stopped()
    snapshot["state"]["epochs_ended"] = list(range(7))

    def problems(epochs: int) -> list[str]:
        job = hand.job.replace(trainer=hand.job.trainer.replace(num_epochs=epochs))
        return [str(problem) for problem in job_problems(job, snapshot)]

    (told,) = problems(asked)
    assert told.startswith(f"trainer.num_epochs={asked}: nothing is left to do: 7 epochs are done; name how many")
    assert told.endswith(f"such as trainer.num_epochs={enough}")
    assert problems(8) == problems(enough) == []


def test_another_model_is_refused_with_words_that_can_be_followed_and_nothing_is_none() -> None:
    hand, snapshot, _ = stopped()
    bounded = hand.job.replace(trainer=hand.job.trainer.replace(limit_batches=7))
    (problem,) = job_problems(bounded, snapshot)
    assert str(problem).endswith("goes on with what it began with: trainer.limit_batches=null")
    theirs = snapshot["asked"] | {"model": "__main__.Net"}
    (problem,) = job_problems(hand.job, snapshot | {"asked": theirs})
    assert "the bundle was saved with __main__.Net" in str(problem)
    assert "task=resume has it where none is typed" in problem.remedy
    assert "model=" not in problem.remedy
    live = snapshot["asked"] | {"model": "flodl.engine.held.made"}
    (problem,) = job_problems(hand.job, snapshot | {"asked": live})
    assert "flodl.engine" not in str(problem)
    assert "a model that lived in its program" in problem.constraint


def test_a_run_that_is_under_way_hears_of_no_bundle() -> None:
    _, snapshot, number = stopped()
    hand = Hand()
    hand.start()
    assert hand.tell(Resumed(at=hand.later(), round=number, origin="a", snapshot=snapshot)) == ()
