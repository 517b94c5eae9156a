"""What accepted rounds add up to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flodl.decide.messages import AveragingDone, Round, WindowDone
from flodl.decide.rounds import Order
from flodl.decide.tally import Outcome, Tally
from flodl.decide.totals import Reduction, Scalar
from tests.scenarios.rigs import places_of

OUTCOME = Outcome(epochs_done=1, samples_done=300, anchor=10, phase="stable", eval={"accuracy": 0.9}, dead_ranks=())


def report(rank: int, *, samples: int, **changes: Any) -> WindowDone:
    facts: dict[str, Any] = {
        "batches": samples // 10,
        "timed_batches": samples // 10,
        "timed_ms": 10.0 * samples,
        "compute_ms": 10.0 * samples,
        "loss_sum": 2.0 * samples,
        "learning_rate": 0.1,
    } | changes
    return WindowDone(at=0.0, rank=rank, generation=1, round=1, samples=samples, **facts)


def result(rank: int, exposed_ms: float = 0.0, divergence: float = 0.0) -> AveragingDone:
    return AveragingDone(
        at=0.0, rank=rank, generation=1, round=1, divergence=divergence, exposed_ms=exposed_ms, duration_ms=exposed_ms
    )


def order(*reports: WindowDone, results: tuple[AveragingDone, ...] = (), epoch: int = 0, number: int = 1) -> Order:
    return Order(
        number=number,
        epoch=epoch,
        alone=False,
        at=0.0,
        rounds={done.rank: (Round(number, done.batches, 0, 0),) for done in reports},
        epochs={done.rank: epoch for done in reports},
        overshoot={},
        reports={done.rank: done for done in reports},
        results={done.rank: done for done in results},
    )


def test_rates_are_samples_per_second_of_the_wall_and_of_each_ranks_own_compute() -> None:
    tally = Tally()
    tally.begin(100.0)
    tally.accept(order(report(0, samples=200), report(1, samples=100, compute_ms=2000.0)), 104.0, 0.0)
    totals = tally.totals(places_of([10, 10]), OUTCOME)
    assert (totals.wall_seconds, totals.samples_per_second) == (4.0, 75.0)
    assert totals.ideal_samples_per_second == 200 / 2.0 + 100 / 2.0
    assert totals.utilisation == 0.5
    assert [(r.rank, r.batches, r.samples, r.compute_seconds) for r in totals.ranks] == [
        (0, 20, 200, 2.0),
        (1, 10, 100, 2.0),
    ]


def test_what_callbacks_took_is_not_wall_time() -> None:
    tally = Tally()
    tally.begin(0.0)
    tally.accept(order(report(0, samples=100)), 5.0, 3.0)
    assert tally.wall_seconds == 2.0


def test_exposed_averaging_is_the_largest_of_a_round_and_each_ranks_own_in_its_figures() -> None:
    tally = Tally()
    tally.begin(0.0)
    reports = (report(0, samples=100, exposed_ms=1.0), report(1, samples=100))
    tally.accept(order(*reports, results=(result(0, 2.0, 0.3), result(1, 5.0, 0.2))), 1.0, 0.0)
    totals = tally.totals(places_of([10, 10]), OUTCOME)
    assert totals.averaging_seconds_exposed == 0.005
    assert totals.divergence_last == 0.3
    assert [rank.averaging_seconds for rank in totals.ranks] == [0.003, 0.005]


def test_loss_and_scalars_are_weighted_by_samples() -> None:
    tally = Tally()
    tally.begin(0.0)
    tally.accept(
        order(
            report(0, samples=300, loss_sum=300.0, scalars={"accuracy": Scalar("mean", 150.0, 300.0)}),
            report(1, samples=100, loss_sum=300.0, scalars={"accuracy": Scalar("mean", 100.0, 100.0)}),
        ),
        1.0,
        0.0,
    )
    metrics = tally.close_epoch(0, samples=400, anchor=3, phase="stable")
    assert (metrics.loss, metrics.scalars, metrics.anchor, metrics.phase) == (1.5, {"accuracy": 0.625}, 3, "stable")
    assert [share.batch_share for share in metrics.ranks] == [0.75, 0.25]
    assert tally.train_loss == 1.5


def test_an_epochs_wall_time_runs_from_the_one_before_it() -> None:
    tally = Tally()
    tally.begin(10.0)
    tally.accept(order(report(0, samples=100)), 12.0, 0.0)
    assert tally.close_epoch(0, samples=100, anchor=1, phase="probe").wall_seconds == 2.0
    tally.accept(order(report(0, samples=100), epoch=1, number=2), 15.0, 0.0)
    metrics = tally.close_epoch(1, samples=100, anchor=1, phase="probe")
    assert (metrics.wall_seconds, metrics.samples_per_second) == (3.0, pytest.approx(100 / 3))


def test_a_window_of_another_epoch_is_counted_there() -> None:
    tally = Tally()
    tally.begin(0.0)
    mixed = order(report(0, samples=100), report(1, samples=50))
    mixed.epochs[1] = 1
    tally.accept(mixed, 1.0, 0.0)
    assert tally.epochs[0].samples == 100
    assert tally.epochs[1].samples == 50


def test_a_round_without_samples_shows_nothing_new() -> None:
    tally = Tally()
    tally.begin(0.0)
    tally.accept(order(report(0, samples=0)), 1.0, 0.0)
    assert (tally.train_loss, tally.shares, tally.rate) == (None, {}, 0.0)
    metrics = tally.close_epoch(0, samples=0, anchor=1, phase="probe")
    assert (metrics.loss, metrics.samples_per_second) == (0.0, 0.0)


def test_a_round_that_took_no_time_leaves_the_shown_rate_alone() -> None:
    tally = Tally()
    tally.begin(0.0)
    tally.accept(order(report(0, samples=100)), 1.0, 0.0)
    tally.accept(order(report(0, samples=100), number=2), 1.0, 0.0)
    assert tally.rate == 100.0
    tally.accept(order(report(0, samples=200), number=3), 2.0, 0.0)
    assert tally.rate == pytest.approx(0.8 * 100 + 0.2 * 200)


def test_a_run_that_did_nothing_has_totals_of_zero() -> None:
    totals = Tally().totals(places_of([10]), OUTCOME)
    assert (totals.samples_per_second, totals.utilisation, totals.train_loss) == (0.0, 0.0, None)
    assert totals.ranks[0].samples == 0


def test_each_reduction_goes_over_windows_and_ranks() -> None:
    def told(value: float, samples: int) -> dict[str, Scalar]:
        mean = Scalar("mean", value * samples, float(samples))
        return {"mean": mean, **{name: Scalar(name, value) for name in ("sum", "max", "min", "last")}}

    tally = Tally()
    tally.begin(0.0)
    both = report(1, samples=10, scalars=told(5.0, 10)), report(0, samples=30, scalars=told(1.0, 30))
    tally.accept(order(*both), 1.0, 0.0)
    tally.accept(order(report(0, samples=40, scalars=told(2.0, 40)), number=2), 2.0, 0.0)
    assert tally.close_epoch(0, samples=80, anchor=1, phase="probe").scalars == {
        "last": 2.0, "max": 5.0, "mean": (5.0 * 10 + 1.0 * 30 + 2.0 * 40) / 80, "min": 1.0, "sum": 8.0,
    }  # fmt: skip


def test_of_the_last_of_several_ranks_the_highest_one_stands() -> None:
    tally = Tally()
    tally.begin(0.0)
    scalars = [{"lr": Scalar("last", value)} for value in (1.0, 2.0)]
    tally.accept(order(report(1, samples=10, scalars=scalars[1]), report(0, samples=10, scalars=scalars[0])), 1.0, 0.0)
    assert tally.close_epoch(0, samples=20, anchor=1, phase="probe").scalars == {"lr": 2.0}


@pytest.mark.parametrize("reduction", ["mean", "sum", "max", "min", "last"])
def test_merging_scalars_is_associative(reduction: Reduction) -> None:
    a, b, c = (Scalar(reduction, value, 2.0) for value in (3.0, -1.0, 2.0))
    assert a.merged(b).merged(c) == a.merged(b.merged(c))


def test_a_scalar_whose_reduction_changed_begins_anew() -> None:
    assert Scalar("sum", 5.0).merged(Scalar("max", 1.0)) == Scalar("max", 1.0)
    assert Scalar("mean", 0.0).result == 0.0


def test_what_adds_up_beyond_all_numbers_stays_one() -> None:
    for reduction in ("mean", "sum"):
        large = Scalar(reduction, 1e308, 1.0)
        assert large.merged(large).merged(large).result > 5e307
        assert msgspec.json.decode(msgspec.json.encode(large.merged(large)), type=Scalar) == large.merged(large)


def test_a_loss_that_was_not_finite_leaves_its_epoch_without_one_and_not_the_next() -> None:
    tally = Tally()
    tally.begin(0.0)
    for number, loss_sum in enumerate([20.0, None, 20.0]):
        tally.accept(order(report(0, samples=10, loss_sum=loss_sum), number=number), 1.0 + number, 0.0)
    assert tally.close_epoch(0, samples=30, anchor=1, phase="stable").loss is None
    assert tally.totals(places_of([10]), OUTCOME).train_loss is None
    tally.accept(order(report(0, samples=10), epoch=1, number=4), 5.0, 0.0)
    assert tally.close_epoch(1, samples=10, anchor=1, phase="stable").loss == 2.0
