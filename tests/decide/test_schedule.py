"""Schedules are pure functions of progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.schedule import Constant, Cosine, Linear, OneCycle, Step
from flodl.errors import ConfigError

SCHEDULES = [
    Constant(),
    Constant(warmup=0.2),
    Cosine(),
    Cosine(warmup=0.1, floor=0.05),
    Step(),
    Step(warmup=0.3),
    Linear(warmup=0.2),
    OneCycle(),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@given(progress=st.floats(-0.5, 1.5))
def test_a_factor_lies_within_0_and_1(schedule: Constant | Cosine | Step, progress: float) -> None:
    assert 0.0 <= schedule(progress) <= 1.0


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_progress_outside_the_run_is_clamped(schedule: Constant | Cosine | Step) -> None:
    assert schedule(-0.1) == schedule(0.0)
    assert schedule(1.1) == pytest.approx(schedule(1.0))


def test_constant_stays_at_the_base_rate() -> None:
    assert {Constant()(p / 10) for p in range(11)} == {1.0}


def test_warm_up_rises_linearly_and_does_not_begin_at_nothing() -> None:
    schedule = Constant(warmup=0.2)
    assert [schedule(p) for p in (0.0, 0.1, 0.2, 0.9)] == pytest.approx([0.1, 0.55, 1.0, 1.0])


def test_cosine_falls_from_1_through_the_middle_to_its_floor() -> None:
    schedule = Cosine(floor=0.1)
    assert [schedule(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.55, 0.1])


def test_cosine_after_a_warm_up_begins_at_1() -> None:
    schedule = Cosine(warmup=0.2)
    assert [schedule(p) for p in (0.1, 0.2, 0.6, 1.0)] == pytest.approx([0.55, 1.0, 0.5, 0.0])


def test_step_multiplies_at_each_milestone() -> None:
    schedule = Step(at=[0.5, 0.75], gamma=0.1)
    assert [schedule(p) for p in (0.49, 0.5, 0.75, 1.0)] == pytest.approx([1.0, 0.1, 0.01, 0.01])


def test_linear_falls_to_its_floor() -> None:
    schedule = Linear(warmup=0.2, floor=0.5)
    assert [schedule(p) for p in (0.1, 0.2, 0.6, 1.0)] == pytest.approx([0.55, 1.0, 0.75, 0.5])


def test_one_cycle_rises_to_1_and_falls() -> None:
    schedule = OneCycle(rise=0.3, start=0.04)
    assert [schedule(p) for p in (0.0, 0.15, 0.3, 0.65, 1.0)] == pytest.approx([0.04, 0.52, 1.0, 0.5, 0.0])


def test_a_warm_up_in_samples_becomes_a_part_of_the_run() -> None:
    assert Cosine(warmup=0.5, warmup_samples=100, floor=0.1).over(1000) == Cosine(warmup=0.1, floor=0.1)
    assert Step(warmup=0.5).over(1000) == Step(warmup=0.5)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Constant(warmup=1.0), "scheduler.warmup=1.0"),
        (lambda: Cosine(warmup=-0.1), "scheduler.warmup=-0.1"),
        (lambda: Cosine(floor=1.5), "scheduler.floor=1.5"),
        (lambda: Step(gamma=2.0), "scheduler.gamma=2.0"),
        (lambda: Step(at=[30, 60]), "scheduler.at=30"),
        (lambda: Linear(floor=2.0), "scheduler.floor=2.0"),
        (lambda: OneCycle(rise=1.0), "scheduler.rise=1.0"),
        (lambda: Constant(warmup_samples=-1), "scheduler.warmup_samples=-1"),
        (lambda: Cosine(warmup_samples=True), "scheduler.warmup_samples=True"),
        (lambda: Constant(warmup_samples=10).over(10), "scheduler.warmup_samples=10"),
        (lambda: Step(at=[0.8, 0.5]), "scheduler.at=[0.8, 0.5]"),
    ],
)
def test_a_value_that_is_no_fraction_is_refused_with_its_key(make: type[Constant], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert key in str(refused.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Cosine(warmup=2.0, floor=-1.0)
    assert [problem.key for problem in refused.value.problems] == ["scheduler.warmup", "scheduler.floor"]
