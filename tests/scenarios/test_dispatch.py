"""What went wrong in the original's dispatch and membership, each made impossible here."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.decide.messages import Average, AveragingDone, Command, Event, Range, RunWindow, WindowDone
from flodl.errors import RunFailed
from flodl.sim import Costs, Fault, Simulated, VirtualWorld, simulate
from flodl.spec.job import EvalConfig, JobSpec, TrainerConfig
from tests.scenarios.rigs import job_of, places_of

MODES = ("cpu_cadence", "cpu_async", "cpu_sync")
Journal = tuple[tuple[Event, tuple[Command, ...]], ...]


def run(
    mode: str, *, num_ranks: int = 2, faults: tuple[Fault, ...] = (), costs: dict[str, Any] | None = None, **blocks: Any
) -> Simulated:
    blocks.setdefault("trainer", TrainerConfig(num_epochs=2, batch_size=10))
    blocks.setdefault("eval", EvalConfig(every_epochs=None))
    figures: dict[str, Any] = {
        "ms_per_batch": tuple(10.0 + 15.0 * rank for rank in range(num_ranks)),
        "num_samples": 1000,
    } | (costs or {})
    return simulate(job_of(mode, **blocks), places_of([10] * num_ranks), Costs(**figures), faults)


def windows(journal: Journal) -> list[RunWindow]:
    return [command for _, commands in journal for command in commands if isinstance(command, RunWindow)]


# ------------------------------------------------------------------------------------------------------ dispatch


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_samples", [10, 17, 239, 1000, 1003])
def test_an_epoch_ends_whatever_its_length_is(mode: str, num_samples: int) -> None:
    """Pool not a multiple of the batch; window larger than an epoch; fewer batches than ranks."""
    done = run(mode, num_ranks=3, costs={"num_samples": num_samples})
    assert done.end.totals.samples_done == 2 * (num_samples // 10 * 10)
    assert [metrics.epoch for metrics in done.epochs] == [0, 1]


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_is_opened_once_and_every_sample_dealt_once(mode: str) -> None:
    """Pool of an aggregated epoch re-created."""
    done = run(mode, costs={"jitter": 0.3})
    trained = sum(event.samples for event, _ in done.journal if isinstance(event, WindowDone))
    assert trained == done.end.totals.samples_done == 2000


@pytest.mark.parametrize("mode", MODES)
def test_no_order_overwrites_another(mode: str) -> None:
    """Second order in a single slot: a rank gets a window only after it has answered the one before."""
    open_for: dict[int, int] = {}
    for event, commands in run(mode, num_ranks=3, costs={"jitter": 0.3}).journal:
        if isinstance(event, WindowDone):
            assert open_for.pop(event.rank) == event.round
        for command in commands:
            if isinstance(command, RunWindow):
                assert command.to[0] not in open_for
                open_for[command.to[0]] = command.rounds[-1].number
    assert not open_for


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_a_round_is_planned_when_all_have_reported_and_never_raced(mode: str) -> None:
    """Trigger that needs samples only its own firing can produce; dispatch latch set before success."""
    reported: dict[int, set[int]] = {}
    for event, commands in run(mode, num_ranks=3).journal:
        if isinstance(event, WindowDone):
            reported.setdefault(event.round, set()).add(event.rank)
        for command in commands:
            if isinstance(command, Average):
                assert reported[command.round] == {0, 1, 2}
                assert sum(command.masses) > 0


def test_a_rank_without_work_reports_at_once_and_blocks_nobody() -> None:
    """Tail rank with zero steps."""
    done = run("cpu_cadence", num_ranks=3, costs={"num_samples": 10})
    idle = [event for event, _ in done.journal if isinstance(event, WindowDone) and event.batches == 0]
    assert {event.rank for event in idle} == {1, 2}
    assert done.end.status == "done"


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_an_epochs_tail_is_one_window_not_many_small_ones(mode: str) -> None:
    """One-batch windows at each tail: at most one window per epoch is far below its neighbours' size."""
    done = run(mode, num_ranks=2, costs={"num_samples": 5000}, elche={"min_anchor": 8})
    for epoch in (0, 1):
        sizes = [
            sum(one.batches for one in order.rounds)
            for order in windows(done.journal)
            if order.epoch == epoch and order.to == (0,)
        ]
        assert sum(size <= 4 for size in sizes) <= 1


@pytest.mark.parametrize("mode", MODES)
def test_the_epochs_end_is_no_barrier(mode: str) -> None:
    """No wake-up after an epoch: the event that ends one orders the next, whose ranges ranks hold already."""
    done = run(mode)
    last_of_first = [order for order in windows(done.journal) if order.epoch == 0 and order.ranges[-1:]][-2:]
    assert all(any(piece.epoch == 1 for piece in order.ranges) for order in last_of_first)
    for _, commands in done.journal:
        kinds = [type(command).__name__ for command in commands]
        if "EpochEnded" in kinds:
            assert {"RunWindow", "Finish"} & set(kinds)


def test_no_plan_is_stale_after_a_change_of_the_anchor() -> None:
    """Quota and ranges are two things: each order states the quota of now."""
    done = run("cpu_cadence", costs={"averaging_ms": 60.0, "num_samples": 8000})
    sizes = [order.rounds[0].batches for order in windows(done.journal) if order.to == (1,)]
    assert max(sizes) > sizes[0]
    assert done.end.totals.anchor > 10


def test_stale_reports_from_before_an_averaging_are_not_counted_after_it() -> None:
    done = run("cpu_cadence", faults=(Fault(kind="duplicate", rank=0, lasts_ms=400.0),))
    assert done.end.totals.samples_done == 2000
    answered: set[tuple[type[Event], int]] = set()
    for event, commands in done.journal:
        if isinstance(event, WindowDone | AveragingDone) and event.rank == 0:
            assert not (commands and (type(event), event.round) in answered), "the second copy orders nothing"
            answered.add((type(event), event.round))


def test_a_hold_is_one_report_and_not_a_flood() -> None:
    """150,000 log lines a second from a hold: a held rank is silent."""
    done = run("cpu_async", costs={"averaging_ms": 500.0, "ms_per_batch": (1.0, 1.0)})
    assert len(done.journal) < 40 * done.end.totals.rounds


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_a_window_larger_than_an_epoch_is_capped(mode: str) -> None:
    done = run(mode, elche={"anchor": 900})
    assert done.end.totals.samples_done == 2000
    assert all(one.samples <= 1000 for order in windows(done.journal) for one in order.rounds)


def test_max_overshoot_is_wired_and_a_held_rank_says_what_it_cost() -> None:
    done = run("cpu_async", costs={"averaging_ms": 200.0, "num_samples": 4000}, elche={"max_overshoot": 2})
    assert {order.max_overshoot for order in windows(done.journal)} <= {0, 1, 2}
    exposed = [event.exposed_ms for event, _ in done.journal if isinstance(event, WindowDone)]
    assert max(exposed) > 100.0


def test_an_async_window_never_mixes_epochs() -> None:
    held: dict[int, tuple[Range, ...]] = {}
    done = run("cpu_async", num_ranks=3, costs={"num_samples": 330, "averaging_ms": 15.0}, elche={"anchor": 2})
    for event, commands in done.journal:
        if isinstance(event, WindowDone):
            left, epochs = event.samples, set[int]()
            for piece in held[event.rank]:
                if left > 0:
                    epochs.add(piece.epoch)
                    left -= len(piece)
            assert len(epochs) <= 1
        held |= {order.to[0]: order.ranges for order in windows(((event, commands),))}


def test_sync_on_equal_ranks_is_ddp() -> None:
    """Every round one batch of every rank, over the whole epoch; the same count of steps as DDP."""
    done = run("cpu_sync", num_ranks=4, costs={"ms_per_batch": (10.0,) * 4})
    assert done.end.totals.rounds == 2 * 25
    assert [rank.batches for rank in done.end.totals.ranks] == [50] * 4
    assert {one.batches for order in windows(done.journal) for one in order.rounds} == {1}


def test_sync_on_unequal_ranks_is_ddp_too_when_no_rank_may_lead() -> None:
    done = run("cpu_sync", elche={"max_batch_diff": 0})
    assert done.end.totals.rounds == 2 * 50
    assert {one.batches for order in windows(done.journal) for one in order.rounds} == {1}


@pytest.mark.parametrize("mode", MODES)
def test_an_equal_split_gives_every_rank_the_same_samples_in_every_mode(mode: str) -> None:
    done = run(mode, num_ranks=2, elche={"split": "equal"})
    assert [rank.samples for rank in done.end.totals.ranks] == [1000, 1000]


# ---------------------------------------------------------------------------------------------------- membership


@pytest.mark.parametrize("mode", MODES)
def test_a_clean_exit_is_not_a_death(mode: str) -> None:
    done = run(mode, num_ranks=3)
    assert (done.end.status, done.end.totals.dead_ranks) == ("done", ())


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_hangs_is_declared_dead_and_not_believed_when_it_comes_back(mode: str) -> None:
    stall = Fault(kind="stall", rank=1, at_seconds=0.3, lasts_ms=2000.0, notice_ms=500.0)
    done = run(mode, num_ranks=3, faults=(stall,))
    assert (done.end.status, done.end.totals.dead_ranks) == ("degraded", (1,))
    assert done.end.totals.samples_done == 2000


@pytest.mark.parametrize("mode", MODES)
def test_a_short_stall_evicts_nobody(mode: str) -> None:
    stall = Fault(kind="stall", rank=1, at_seconds=0.3, lasts_ms=200.0, notice_ms=500.0)
    assert run(mode, num_ranks=3, faults=(stall,)).end.status == "done"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("on", ["RunWindow", "Average", "FormGroup", "Finish"])
def test_a_lost_goodbye_or_any_other_death_never_makes_the_run_last_for_ever(mode: str, on: str) -> None:
    one = Fault(kind="death", rank=2, on="RunWindow", nth=8, after_ms=1.0)
    other = Fault(kind="death", rank=0, on=on, nth=2 if on == "FormGroup" else 1, after_ms=0.5)
    done = run(mode, num_ranks=3, faults=(one, other))
    assert done.end.status == "degraded"
    assert done.end.totals.samples_done == 2000


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async"])
def test_the_role_moves_when_its_rank_dies_and_the_run_is_saved(mode: str) -> None:
    faults = (Fault(kind="death", rank=0, on="Finish", after_ms=10.0), Fault(kind="callback", rank=1, callback="save"))
    done = run(mode, num_ranks=3, faults=faults, costs={"ms_per_batch": (10.0, 12.0, 14.0)})
    assert (done.end.status, done.end.exit_code) == ("degraded", 0)


def test_a_world_in_which_nothing_can_happen_any_more_says_so() -> None:
    job: JobSpec = job_of("cpu_cadence")
    world = VirtualWorld(job, places_of([1]), Costs(ms_per_batch=(1.0,)))
    assert world.next_event(0.0) is not None
    with pytest.raises(RunFailed, match="deadlock"):
        world.next_event(0.0)
    world.close()
