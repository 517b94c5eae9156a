"""One cycle per accepted round, and the length of grants."""

from __future__ import annotations

import pytest

from flodl.decide.messages import AveragingDone, Round, WindowDone
from flodl.decide.pace import Pace
from flodl.decide.rounds import Order
from flodl.spec.guard import MsfGuardConfig
from tests.scenarios.rigs import job_of


def order(
    number: int,
    ms: list[float],
    *,
    divergence: float = 0.0,
    exposed_ms: float = 1.0,
    is_rest: bool = False,
    batches: int = 10,
    idle_ms: tuple[float, ...] = (0.0, 0.0, 0.0),
    told_at: float = 0.0,
) -> Order:
    ranks = range(len(ms))
    return Order(
        number=number,
        epoch=0,
        alone=False,
        at=0.0,
        rounds={rank: (Round(number, batches, 0, 0),) for rank in ranks},
        epochs=dict.fromkeys(ranks, 0),
        overshoot={},
        is_rest=is_rest,
        reports={
            rank: WindowDone(
                at=0.0,
                rank=rank,
                generation=1,
                round=number,
                batches=batches,
                samples=batches,
                timed_batches=batches,
                timed_ms=batches * ms[rank],
                compute_ms=batches * ms[rank],
                idle_ms=idle_ms[rank],
            )
            for rank in ranks
        },
        results={
            rank: AveragingDone(
                at=told_at * (1 + rank) / len(ms),
                rank=rank,
                generation=1,
                round=number,
                divergence=divergence,
                exposed_ms=exposed_ms,
                duration_ms=exposed_ms,
            )
            for rank in ranks
        },
    )


def test_an_accepted_round_brings_adapted_quotas() -> None:
    pace = Pace(job_of("cpu_cadence"), (0, 1))
    pace.observe(order(1, [10.0, 25.0]), (0, 1))
    assert pace.quotas(1000, {}).by_rank == {0: 25, 1: 10}
    assert pace.smoothed_ms((0, 1)) == {0: 10.0, 1: 25.0}


@pytest.mark.parametrize(
    ("mode", "idle_ms", "grows"),
    [
        ("cpu_cadence", (40.0, 12.0), True),  # 12 ms of 100 while nobody computed: orders were on their way
        ("cpu_cadence", (40.0, 0.0), False),  # one rank waited for the other: that is no price of averaging
        ("cpu_async", (40.0, 12.0), False),  # its rounds run beside training
    ],
)
def test_what_all_ranks_stand_still_for_is_a_price_of_averaging(
    mode: str, idle_ms: tuple[float, ...], grows: bool
) -> None:
    pace = Pace(job_of(mode), (0, 1))
    before = pace.elche.anchor
    for number in range(1, 8):
        pace.observe(order(number, [10.0, 25.0], exposed_ms=8.0, idle_ms=idle_ms), (0, 1))
    assert (pace.elche.anchor > before) == grows


def test_a_single_batch_of_an_epochs_rest_is_no_reading() -> None:
    pace = Pace(job_of("cpu_cadence"), (0, 1))
    pace.observe(order(1, [10.0, 25.0], is_rest=True, batches=1), (0, 1))
    assert pace.smoothed_ms((0, 1)) == {0: None, 1: None}


@pytest.mark.parametrize(
    ("mode", "is_rest", "grows"),
    [
        ("cpu_async", False, True),
        ("cpu_async", True, False),  # a round outlasts what an epoch has left
        ("cpu_cadence", True, True),  # who waits for every round pays the same whatever the window
    ],
)
def test_what_the_rest_of_an_epoch_cannot_hide_is_no_price_of_the_anchor(mode: str, is_rest: bool, grows: bool) -> None:
    pace = Pace(job_of(mode), (0, 1))
    for number in range(1, 7):
        pace.observe(order(number, [10.0, 10.0], exposed_ms=4.0), (0, 1))
        pace.quotas(1000, {})
    before = pace.elche.anchor
    for number in range(7, 9):
        pace.observe(order(number, [10.0, 10.0], exposed_ms=30.0, is_rest=is_rest, batches=3), (0, 1))
        pace.quotas(1000, {})
    assert (pace.elche.anchor > before) == grows


def test_a_round_lasts_from_its_order_until_the_last_rank_has_told_its_result() -> None:
    pace = Pace(job_of("cpu_async"), (0, 1))
    for number in range(1, 30):
        pace.observe(order(number, [10.0, 10.0], exposed_ms=0.0, told_at=0.055), (0, 1))
        pace.quotas(1000, {})
    assert pace.elche.anchor == 6
    assert order(1, [10.0, 10.0]).round_ms == 0.0


def test_a_rank_that_died_before_it_reported_has_missed() -> None:
    pace = Pace(job_of("cpu_cadence"), (0, 1, 2))
    pace.remove(2)
    pace.observe(order(1, [10.0]), (0, 1))
    assert pace.smoothed_ms((0, 1)) == {0: 10.0, 1: None}


def test_a_nudge_asks_for_the_consensus_in_the_next_round() -> None:
    pace = Pace(job_of("cpu_cadence", guard=MsfGuardConfig(nudge_sustain=1)), (0, 1))
    divergence = 1e-4
    seen: list[bool] = []
    for number in range(1, 5):
        pace.observe(order(number, [10.0, 10.0], divergence=divergence), (0, 1))
        seen.append(pace.nudged)
        divergence *= 2
    assert any(seen)
    assert pace.elche.anchor < 10


@pytest.mark.parametrize(
    ("before", "units", "wall_ms", "after"),
    [
        (1, 1, 1.0, 4),
        (4, 4, 100.0, 16),
        (16, 16, 320.0, 50),
        (50, 50, 5000.0, 10),
        (5, 5, 60_000.0, 1),
        (900, 900, 1.0, 1000),
    ],
)
def test_a_grant_is_sized_for_a_second(before: int, units: int, wall_ms: float, after: int) -> None:
    pace = Pace(job_of("cpu_sync"), (0, 1))
    pace.grant_rounds = before
    pace.resize_grant(units, wall_ms)
    assert pace.grant_rounds == after


def test_a_grant_that_took_no_time_grows_as_far_as_it_may() -> None:
    pace = Pace(job_of("cpu_sync"), (0, 1))
    pace.resize_grant(1, 0.0)
    assert pace.grant_rounds == 4


@pytest.mark.parametrize(("left", "batches"), [(300, 100), (151, 100), (150, 150), (100, 100), (7, 7)])
def test_a_short_rest_of_an_epoch_is_taken_with_the_grant_before_it(left: int, batches: int) -> None:
    pace = Pace(job_of("cpu_cadence"), (0,))
    pace.grant_rounds = 100
    assert pace.grant(left) == batches


def test_settling_is_the_meta_controllers_word() -> None:
    assert not Pace(job_of("cpu_cadence"), (0, 1)).is_settled


def test_a_restored_pace_plans_the_same() -> None:
    job = job_of("cpu_cadence")
    pace = Pace(job, (0, 1))
    for number in range(1, 9):
        pace.observe(order(number, [10.0, 25.0], divergence=0.01 * number), (0, 1))
    pace.resize_grant(1, 3.0)
    other = Pace(job, (0, 1))
    other.restore(pace.snapshot())
    assert other.snapshot() == pace.snapshot()
    for mind in (pace, other):
        mind.observe(order(9, [12.0, 20.0], divergence=0.2), (0, 1))
    assert other.snapshot() == pace.snapshot()
    assert other.quotas(1000, {}) == pace.quotas(1000, {})
