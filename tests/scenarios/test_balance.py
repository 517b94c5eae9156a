"""Balance in virtual time: unequal ranks are kept busy, and a change of speed is followed."""

from __future__ import annotations

from collections import defaultdict

import pytest

from flodl.decide.messages import RunWindow, WindowDone
from flodl.sim import Costs, Simulated, SpeedChange, simulate
from flodl.spec.job import EvalConfig, TrainerConfig
from tests.scenarios.rigs import job_of, places_of

MS = (10.0, 25.0)  # speeds 1 : 0.4
BATCH = 64
IDEAL = BATCH / 0.010 + BATCH / 0.025  # samples per second
PROPORTIONAL = ("cpu_cadence", "cpu_async")


def run(
    mode: str, *, num_epochs: int = 4, ms: tuple[float, ...] = MS, changes: tuple[SpeedChange, ...] = ()
) -> Simulated:
    job = job_of(
        mode, trainer=TrainerConfig(num_epochs=num_epochs, batch_size=BATCH), eval=EvalConfig(every_epochs=None)
    )
    costs = Costs(ms_per_batch=ms, averaging_ms=5.0, first_batch_ms=100.0, num_samples=BATCH * 1000, changes=changes)
    return simulate(job, places_of([BATCH] * len(ms)), costs)


@pytest.mark.parametrize("mode", PROPORTIONAL)
def test_two_unequal_ranks_are_kept_busy_after_the_warm_up(mode: str) -> None:
    done = run(mode)
    assert all(metrics.samples_per_second >= 0.95 * IDEAL for metrics in done.epochs[1:])
    assert done.end.totals.utilisation >= 0.95
    shares = [rank.batch_share for rank in done.epochs[-1].ranks]
    assert shares == pytest.approx([5 / 7, 2 / 7], abs=0.01)


def test_sync_with_equal_shares_is_what_it_costs_not_to_balance() -> None:
    totals = run("cpu_sync", num_epochs=1).end.totals
    assert totals.utilisation < 0.6
    assert [rank.batches for rank in totals.ranks] == [500, 500]


@pytest.mark.parametrize("mode", PROPORTIONAL)
def test_four_unequal_ranks_are_kept_busy_too(mode: str) -> None:
    assert run(mode, ms=(10.0, 25.0, 25.0, 47.6)).end.totals.utilisation >= 0.90


def utilisation_by_window(done: Simulated, changed_at: float) -> list[float]:
    """Batches done over batches possible, of every window that began after the change, at the true speeds then."""
    began: dict[int, float] = {}
    batches: dict[int, int] = defaultdict(int)
    for event, commands in done.journal:
        if isinstance(event, WindowDone):
            batches[event.round] += event.batches
        for command in commands:
            if isinstance(command, RunWindow):
                began.setdefault(command.rounds[0].number, event.at)
    per_second = 2 * 1000.0 / 25.0
    numbers = sorted(number for number, at in began.items() if at >= changed_at and number + 1 in began)
    return [batches[number] / ((began[number + 1] - began[number]) * per_second) for number in numbers]


@pytest.mark.parametrize("mode", PROPORTIONAL)
def test_from_the_fourth_window_after_a_change_of_speed_both_ranks_are_busy_again(mode: str) -> None:
    done = run(mode, num_epochs=2, changes=(SpeedChange(rank=0, at_seconds=8.0, ms=25.0),))
    after = utilisation_by_window(done, 8.0)
    assert after[0] < 1.0
    settled = after[3:-2]
    span = 10  # single windows of cpu_async lend batches to each other: look at some of them together
    means = [sum(settled[i : i + span]) / span for i in range(0, len(settled) - span, span)]
    assert min(means) > 0.9


@pytest.mark.parametrize("mode", PROPORTIONAL)
def test_a_rank_slowed_to_a_fifth_and_freed_later_gets_its_share_back(mode: str) -> None:
    slow_then_free = (SpeedChange(rank=0, at_seconds=4.0, ms=50.0), SpeedChange(rank=0, at_seconds=15.0, ms=10.0))
    done = run(mode, num_epochs=5, changes=slow_then_free)
    assert done.end.status == "done"
    assert [rank.batch_share for rank in done.epochs[-1].ranks] == pytest.approx([5 / 7, 2 / 7], abs=0.02)


@pytest.mark.parametrize(("ms", "averaging_ms", "lowest"), [((40.5, 103.0), 180.0, 2), ((40.0, 41.0), 100.0, 3)])
def test_a_round_that_lasts_as_long_as_batches_do_neither_stops_nor_rocks_the_anchor(
    ms: tuple[float, float], averaging_ms: float, lowest: int
) -> None:
    """The short rest of every epoch, which hides no round, once threw the anchor from 2 to 16; it came down by 1."""
    job = job_of(
        "cpu_async", trainer=TrainerConfig(num_epochs=12, batch_size=BATCH), eval=EvalConfig(every_epochs=None)
    )
    costs = Costs(ms_per_batch=ms, averaging_ms=averaging_ms, num_samples=BATCH * 200, jitter=0.02)
    done = simulate(job, places_of([BATCH] * 2), costs)
    anchors = [metrics.anchor for metrics in done.epochs[5:]]
    assert lowest <= min(anchors)
    assert max(anchors) <= lowest + 3
    ideal = sum(BATCH / one * 1000 for one in ms)
    assert all(metrics.samples_per_second >= 0.965 * ideal for metrics in done.epochs[5:])


def test_who_evaluates_in_an_epoch_of_one_window_leaves_its_work_to_nobody_who_is_slower() -> None:
    """Its window is short then, and the rest of the epoch was once shared out as that window was: 7 to 15."""
    job = job_of("cpu_async", trainer=TrainerConfig(num_epochs=8, batch_size=BATCH))
    done = simulate(job, places_of([BATCH] * 2), Costs(ms_per_batch=(5.0, 50.0), num_samples=BATCH * 22))
    for metrics in done.epochs[3:]:
        assert metrics.ranks[0].batch_share == pytest.approx(10 / 11, abs=0.05)


@pytest.mark.parametrize("mode", PROPORTIONAL)
def test_where_a_window_is_an_epoch_its_single_batches_are_measured_too(mode: str) -> None:
    """They were taken for those of a short rest: the slow rank's speed was forgotten, and its window halved or so."""
    job = job_of(mode, trainer=TrainerConfig(num_epochs=20, batch_size=BATCH), eval=EvalConfig(every_epochs=None))
    done = simulate(job, places_of([BATCH] * 2), Costs(ms_per_batch=(10.0, 100.0), num_samples=BATCH * 11))
    assert done.end.totals.phase == "mature"
    assert all(metrics.samples_per_second >= 0.9 * 11 * BATCH / 0.1 for metrics in done.epochs[2:])


def test_where_batches_differ_a_window_of_a_whole_epoch_tells_what_averaging_costs() -> None:
    """It holds fewer batches than were planned: what it told was left out, and the anchor stayed at 35."""
    job = job_of("cpu_async", trainer=TrainerConfig(num_epochs=30, batch_size=8), eval=EvalConfig(every_epochs=None))
    done = simulate(job, places_of([4, 16]), Costs(ms_per_batch=(10.0, 10.0), averaging_ms=60.0, num_samples=320))
    assert max(metrics.anchor for metrics in done.epochs[-5:]) <= 10
