"""Runs that end by rule, in virtual time: when exactly, with which status, and that every rank hears of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from flodl import drive
from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import (
    AveragingDone,
    CallbackResult,
    Cut,
    EndBy,
    Finish,
    IntervalEnded,
    RunWindow,
    TimeReached,
    WindowDone,
)
from flodl.sim import Costs, Fault, Simulated, simulate
from flodl.spec.job import EvalConfig, StopConfig, TrainerConfig
from flodl.spec.stop import EarlyConfig, TargetConfig
from tests.scenarios.rigs import job_of, places_of

LONG = TrainerConfig(num_epochs=1000, batch_size=10)
MODES = ("cpu_cadence", "cpu_async", "cpu_sync")


def run(mode: str = "cpu_cadence", num_ranks: int = 2, **options: Any) -> Simulated:
    """costs, faults, end_by: of the simulation; the rest are blocks of the job."""
    costs = Costs(
        ms_per_batch=(10.0, 25.0, 15.0, 40.0)[:num_ranks], num_samples=2000, save_ms=0.0, **options.pop("costs", {})
    )
    faults, end_by = options.pop("faults", ()), options.pop("end_by", None)
    options.setdefault("trainer", LONG)
    options.setdefault("eval", EvalConfig(every_epochs=None, at_end=False))
    job = job_of(mode, **options)
    done = simulate(job, places_of([10] * num_ranks), costs, faults, end_by=end_by)
    again = drive.replay([event for event, _ in done.journal], job, places_of([10] * num_ranks))
    assert list(again) == [commands for _, commands in done.journal], "a journal replays exactly"
    return done


def told(done: Simulated, kind: type) -> list[Any]:
    return [command for _, commands in done.journal for command in commands if isinstance(command, kind)]


def events(done: Simulated, kind: type) -> list[Any]:
    return [event for event, _ in done.journal if isinstance(event, kind)]


def began(done: Simulated) -> float:
    """When the first window was ordered."""
    return next(event.at for event, commands in done.journal if any(isinstance(c, RunWindow) for c in commands))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_max_time_is_kept_with_time_for_the_last_round(mode: str, num_ranks: int) -> None:
    done = run(mode, num_ranks, stop=StopConfig(max_time="20s"))
    assert (done.end.status, done.end.exit_code) == ("stopped", 0)
    assert done.end.reason == "stop.max_time=20s: the time is up"
    assert 18.5 < done.seconds - began(done) < 20.2
    assert done.end.totals.samples_done > 0


def test_within_a_long_window_the_deadline_is_an_event_of_its_own_and_the_window_is_cut() -> None:
    done = run(elche={"anchor": 1000}, stop=StopConfig(max_time=2))
    assert len(events(done, TimeReached)) == 1
    assert [command.to for command in told(done, Cut)] == [(1,)], "rank 0 has reported its half of the epoch"
    assert 1.9 < done.seconds - began(done) < 2.1
    assert done.end.totals.rounds == 1
    assert done.end.totals.samples_done == 10 * (100 + 81), "half the epoch, and the slow rank's steps begun in 2 s"


def test_no_deadline_floods_a_journal() -> None:
    done = run(stop=StopConfig(max_time="1m"))
    assert len(events(done, TimeReached)) <= 1
    assert events(run(trainer=TrainerConfig(num_epochs=1, batch_size=10)), TimeReached) == []


def test_what_is_left_to_do_is_predicted_and_kept_free() -> None:
    slow = {"averaging_ms": 900.0, "eval_ms": 2000.0}
    evaluated = EvalConfig(every_epochs=1, at_end=True)
    done = run(stop=StopConfig(max_time=30), costs=slow, eval=evaluated)
    assert 28.0 < done.seconds - began(done) < 30.3


def test_a_prediction_never_takes_more_than_half_of_the_time() -> None:
    done = run(stop=StopConfig(max_time=4), costs={"averaging_ms": 60_000.0})
    assert done.end.status == "stopped"
    assert done.end.totals.rounds == 1


def test_a_time_of_day_is_told_as_a_duration_from_the_start() -> None:
    done = run(end_by=(12.0, "stop.at=07:00"))
    assert [event.seconds_left for event in events(done, EndBy)] == [12.0]
    assert done.end.reason == "stop.at=07:00: the time is up"
    assert 11.0 < done.seconds < 12.2


def test_the_nearest_limit_counts() -> None:
    assert run(end_by=(12.0, "stop.at=07:00"), stop=StopConfig(max_time=5)).end.reason.startswith("stop.max_time=5:")
    assert run(end_by=(5.0, "stop.at=07:00"), stop=StopConfig(max_time=12)).end.reason.startswith("stop.at=07:00:")


def test_a_limit_before_the_first_window_ends_the_start() -> None:
    done = run(end_by=(0.01, "stop.at=07:00"))
    assert (done.end.status, done.end.exit_code) == ("stopped", 0)
    assert done.end.reason == "stop.at=07:00: the time is up, before the first window"
    assert done.end.totals.samples_done == 0


@pytest.mark.parametrize("mode", MODES)
def test_max_samples_are_reached_and_their_round_is_the_last(mode: str) -> None:
    done = run(mode, stop=StopConfig(max_samples=5000))
    assert done.end.status == "stopped"
    assert done.end.reason == f"stop.max_samples=5000: {done.end.totals.samples_done} samples are done"
    assert 5000 <= done.end.totals.samples_done < 5000 + 2000


@pytest.mark.parametrize("mode", MODES)
def test_a_goal_that_is_reached_ends_the_run(mode: str) -> None:
    goal = StopConfig(target=TargetConfig(metric="accuracy", value=0.8))
    done = run(mode, stop=goal, eval=EvalConfig(), costs={"accuracy": (0.5, 0.7, 0.85, 0.9)})
    assert (done.end.status, done.end.exit_code) == ("stopped", 0)
    assert done.end.reason == "stop.target: accuracy 0.85 has reached 0.8"
    assert done.end.totals.epochs_done == 3


@pytest.mark.parametrize("mode", MODES)
def test_early_stopping_counts_readings_without_progress_and_ends_all_ranks_together(mode: str) -> None:
    rule = StopConfig(early=EarlyConfig(metric="accuracy", patience=2, min_delta=0.01))
    done = run(mode, 4, stop=rule, eval=EvalConfig(), costs={"accuracy": (0.5, 0.7, 0.705, 0.8, 0.805, 0.79, 0.9)})
    assert done.end.status == "stopped"
    assert done.end.reason == "stop.early: accuracy 0.79 is the reading no. 2 in a row that is no better than 0.8"
    reports = [event.round for event in events(done, WindowDone)]
    assert reports.count(max(reports)) == 4, "the last round is everybody's"
    assert sorted(rank for command in told(done, Finish) for rank in command.to) == [0, 1, 2, 3]


def test_a_goal_of_training_needs_no_evaluation() -> None:
    goal = StopConfig(target=TargetConfig(metric="train_loss", value=0.5))
    done = run(stop=goal)
    assert done.end.status == "stopped"
    assert done.end.reason.startswith("stop.target: train_loss 0.")
    assert done.epochs[-1].loss <= 0.5 < done.epochs[-2].loss


def test_a_figure_of_training_that_nobody_records_is_told_once() -> None:
    rule = StopConfig(early=EarlyConfig(metric="train_top5"))
    done = run(stop=rule, trainer=TrainerConfig(num_epochs=3, batch_size=10))
    alerts = [event for event in done.journal for c in event[1] if "train_top5 is not among" in getattr(c, "text", "")]
    assert len(alerts) == 1
    assert done.end.status == "done"


def test_a_settled_run_ends_where_that_is_wanted() -> None:
    trainer = TrainerConfig(num_epochs=60, batch_size=10)
    assert run(trainer=trainer).end.status == "done"
    done = run(trainer=trainer, stop=StopConfig(when_settled=True))
    assert done.end.status == "stopped"
    assert done.end.reason.startswith("stop.when_settled: anchor")


def test_a_rule_that_comes_true_with_the_last_epoch_changes_nothing() -> None:
    trainer = TrainerConfig(num_epochs=2, batch_size=10)
    assert run(trainer=trainer, stop=StopConfig(max_samples=4000)).end.status == "done"


def test_a_signal_that_follows_a_rule_changes_nothing() -> None:
    stop = Fault(kind="stop", on="Cut", after_ms=1.0)
    done = run(elche={"anchor": 1000}, stop=StopConfig(max_time=3), faults=[stop])
    assert (done.end.status, done.end.exit_code) == ("stopped", 0)


def test_time_that_is_up_while_survivors_regroup_ends_the_run_after_it() -> None:
    death = Fault(kind="death", rank=1, at_seconds=2.95, notice_ms=40.0)
    done = run(
        num_ranks=4, elche={"anchor": 1000}, stop=StopConfig(max_time=3), faults=[death], costs={"form_ms": 500.0}
    )
    assert done.end.status == "stopped"
    assert done.end.totals.dead_ranks == (1,)


def test_evaluations_by_the_clock_come_at_the_next_averaging_and_are_no_part_of_the_wall_time() -> None:
    by_clock = EvalConfig(every_epochs=None, every_minutes=0.1, at_end=False)
    done = run(eval=by_clock, stop=StopConfig(max_time=35))
    windows = [(event.at, c) for event, cs in done.journal for c in cs if isinstance(c, RunWindow) and c.callbacks]
    gaps = [later[0] - sooner[0] for sooner, later in pairwise(windows)]
    assert len(windows) == 5
    assert all(6.0 <= gap < 7.0 for gap in gaps)
    assert all(command.to == (0,) for _, command in windows)
    assert any(command.midway for _, command in windows)
    assert done.end.totals.wall_seconds < done.seconds - began(done) - 0.2


def test_parts_of_an_epoch_are_told_and_add_up() -> None:
    done = run(trainer=TrainerConfig(num_epochs=2, batch_size=10, reports_per_epoch=4))
    parts = [command.metrics for command in told(done, IntervalEnded)]
    assert [(part.epoch, part.interval) for part in parts] == [(e, n) for e in (0, 1) for n in (1, 2, 3)]
    first = [part for part in parts if part.epoch == 0]
    assert all(part.samples >= 2000 * part.interval / 4 for part in first)
    whole = done.epochs[0]
    assert sum(part.wall_seconds for part in first) < whole.wall_seconds
    assert first[0].loss > first[1].loss > first[2].loss, "each part's own loss, not the epoch's so far"
    assert first[0].samples_per_second == pytest.approx(first[0].samples / first[0].wall_seconds)


def test_a_restored_mind_stops_as_the_old_one_would() -> None:
    rule = StopConfig(max_time=9, early=EarlyConfig(metric="accuracy", patience=3))
    trainer = TrainerConfig(num_epochs=1000, batch_size=10, reports_per_epoch=3)
    done = run(stop=rule, eval=EvalConfig(), trainer=trainer)
    job = job_of("cpu_cadence", stop=rule, eval=EvalConfig(), trainer=trainer)
    mind = Coordinator(job, places_of([10, 10]))
    for event, commands in done.journal:
        fresh = Coordinator(job, places_of([10, 10]))
        fresh.restore(mind.snapshot())
        assert fresh.deadline == mind.deadline
        assert fresh.handle(event) == commands
        mind.handle(event)


def test_a_midway_evaluation_counts_for_early_stopping_too() -> None:
    rule = StopConfig(early=EarlyConfig(metric="accuracy", patience=2))
    done = run(stop=rule, eval=EvalConfig(every_epochs=None, every_minutes=0.02, at_end=False))
    assert done.end.status == "stopped"
    readings = [r for e in events(done, WindowDone) for r in e.callbacks if isinstance(r, CallbackResult)]
    assert len(readings) == 3
    assert max(event.round for event in events(done, AveragingDone)) == done.end.totals.rounds
