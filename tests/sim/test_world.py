"""Virtual time keeps its own rules: order on a link, frozen ranks, collectives that end on some only."""

from __future__ import annotations

from random import Random

import pytest

from flodl.decide.messages import Alert, Cut, Finish, Range, RankDied, RankReady, Round, RunWindow, WindowDone
from flodl.decide.roster import roster
from flodl.errors import ConfigError
from flodl.sim import Costs, Fault, SpeedChange, VirtualWorld, costs_of, simulate
from flodl.sim.collective import Contribution, Meetings
from flodl.spec.cluster import ClusterSpec, HostSpec
from flodl.spec.job import MembershipConfig, SimConfig, TrainerConfig
from tests.scenarios.rigs import job_of, places_of


def world(num_ranks: int = 1, *faults: Fault, **figures: object) -> VirtualWorld:
    values: dict[str, object] = {"ms_per_batch": (10.0,) * num_ranks} | figures
    made = VirtualWorld(job_of("cpu_cadence"), places_of([10] * num_ranks), Costs(**values), faults)  # type: ignore[arg-type]
    for _ in range(num_ranks):
        assert isinstance(made.next_event(0.0), RankReady)
    return made


def window(*ranges: Range, batches: int = 1) -> RunWindow:
    return RunWindow(to=(0,), generation=1, rounds=(Round(1, batches, 0, 10),), ranges=ranges, epoch=0, reason="test")


def reported(made: VirtualWorld) -> WindowDone:
    event = made.next_event(0.0)
    assert isinstance(event, WindowDone)
    return event


def test_a_window_takes_as_long_as_its_batches() -> None:
    made = world(first_batch_ms=5.0, link_ms=0.0)
    made.execute(window(Range(0, 0, 25), batches=3))
    done = reported(made)
    assert (done.batches, done.samples, done.compute_ms) == (3, 25, 35.0)
    assert (done.timed_batches, done.timed_ms) == (2, 20.0), "the first batch of all is set-up"
    assert made.now == pytest.approx(0.035)


def test_a_speed_changes_when_it_was_said_to() -> None:
    made = world(link_ms=0.0, changes=(SpeedChange(rank=0, at_seconds=0.015, ms=1.0),))
    made.execute(window(Range(0, 0, 40), batches=4))
    assert reported(made).compute_ms == 10.0 + 10.0 + 1.0 + 1.0


def test_a_cut_ends_the_window_at_the_steps_edge() -> None:
    made = world(link_ms=0.0)
    made.execute(window(Range(0, 0, 100), batches=10))
    made.execute(Cut(to=(0,), reason="test"))
    assert reported(made).batches == 1


def test_a_cut_without_a_window_is_too_late() -> None:
    made = world()
    made.execute(Cut(to=(0,), reason="test"))
    made.execute(window(Range(0, 0, 10)))
    assert reported(made).batches == 1


def test_a_rank_refuses_a_list_that_forgets_what_it_has_run() -> None:
    made = world(link_ms=0.0)
    held = window(Range(0, 0, 100))
    made.execute(RunWindow(**{name: getattr(held, name) for name in held.__struct_fields__} | {"max_overshoot": 3}))
    reported(made)
    made.execute(Finish(to=(), reason="time passes"))
    made.now += 0.015
    made.execute(window(Range(0, 50, 80)))
    with pytest.raises(AssertionError, match="the new list begins with"):
        made.next_event(0.0)


def test_a_rank_refuses_to_run_what_it_does_not_hold() -> None:
    made = world()
    made.execute(window(Range(0, 0, 10), batches=2))
    with pytest.raises(AssertionError, match="more batches than it holds"):
        made.next_event(0.0)


def test_what_is_not_for_ranks_is_sent_to_none() -> None:
    made = world()
    made.execute(Alert(text="hello", reason="test"))
    with pytest.raises(TypeError, match="Alert"):
        made.ranks[0].receive(Alert(text="hello", reason="test"))


def test_a_frozen_rank_does_nothing_and_goes_on_afterwards() -> None:
    stall = Fault(kind="stall", at_seconds=0.005, lasts_ms=100.0, notice_ms=1000.0)
    made = world(1, stall, link_ms=0.0)
    made.execute(window(Range(0, 0, 10)))
    assert reported(made).at == pytest.approx(0.105)


def test_a_death_is_noticed_later_and_once() -> None:
    deaths = (Fault(kind="death", at_seconds=0.005, notice_ms=50.0), Fault(kind="death", at_seconds=0.006))
    made = world(1, *deaths, link_ms=0.0)
    made.execute(window(Range(0, 0, 10)))
    event = made.next_event(0.0)
    assert isinstance(event, RankDied)
    assert (event.at, event.rank) == (pytest.approx(0.055), 0)


def test_a_collective_ends_when_all_are_there() -> None:
    meetings = Meetings(Random(0))
    key = (1, "round 1")
    assert meetings.arrive(key, (0, 1), Contribution(0, (Range(0, 0, 5),)), 0.0, 1.0) is None
    meeting = meetings.arrive(key, (0, 1), Contribution(1, (), is_finite=False), 2.0, 1.0)
    assert meeting is not None
    assert all(3.0 <= at <= 3.2 for at in meeting.ends_at.values())
    assert meetings.deliver(key, 0) == (Contribution(0, (Range(0, 0, 5),)),), "what is not finite is left out"
    assert meetings.deliver(key, 0) is None, "once"


def test_a_death_inside_a_collective_lets_it_end_on_some_and_not_on_others() -> None:
    ends: set[int] = set()
    for seed in range(20):
        meetings = Meetings(Random(seed))
        for rank in range(4):
            meetings.arrive((1, "round 1"), (0, 1, 2, 3), Contribution(rank, ()), 0.0, 1.0)
        meetings.lose(3, 0.5)
        ends.add(sum(meetings.deliver((1, "round 1"), rank) is not None for rank in range(3)))
    assert ends == {0, 1, 2, 3}


def test_a_death_after_a_collective_changes_nothing_of_it() -> None:
    meetings = Meetings(Random(0))
    for rank in range(2):
        meetings.arrive((1, "round 1"), (0, 1), Contribution(rank, ()), 0.0, 1.0)
    meetings.lose(1, 5.0)
    assert meetings.deliver((1, "round 1"), 0) is not None


def test_the_jobs_own_figures_are_the_costs() -> None:
    cluster = ClusterSpec(workers=(HostSpec(host="here", local_devices="cpu:2", speed=(1.0, 0.4)),))
    job = job_of("cpu_cadence", cluster=cluster, sim=SimConfig(averaging_ms=7.0, jitter=0.1, num_samples=99))
    costs = costs_of(job, roster(job, {}))
    assert (costs.ms_per_batch, costs.averaging_ms, costs.jitter, costs.num_samples) == ((10.0, 25.0), 7.0, 0.1, 99)
    given = costs_of(job.replace(sim=SimConfig(ms_per_batch=(3.0,))), places_of([1, 1]))
    assert given.ms_per_batch == (3.0, 3.0)


def test_figures_that_are_neither_one_for_all_ranks_nor_one_for_each_are_refused() -> None:
    job = job_of("cpu_cadence", sim=SimConfig(ms_per_batch=(5.0, 6.0, 7.0)))
    assert costs_of(job, places_of([1, 1, 1])).ms_per_batch == (5.0, 6.0, 7.0)
    for num_ranks in (1, 2, 4):
        with pytest.raises(ConfigError) as refused:
            costs_of(job, places_of([1] * num_ranks))
        assert [problem.key for problem in refused.value.problems] == ["sim.ms_per_batch"]


def test_a_job_runs_on_its_own_figures() -> None:
    job = job_of("cpu_cadence", trainer=TrainerConfig(num_epochs=1, batch_size=10), sim=SimConfig(num_samples=1000))
    done = simulate(job, places_of([10, 10]))
    assert (done.end.status, done.end.totals.samples_done, len(done.epochs)) == ("done", 1000, 1)
    assert done.seconds > 0.5


def test_contributions_that_are_not_finite_are_told_in_every_mode() -> None:
    for mode in ("cpu_cadence", "cpu_async", "cpu_sync"):
        job = job_of(mode, trainer=TrainerConfig(num_epochs=1, batch_size=10))
        fault = Fault(kind="nonfinite", rank=1, at_seconds=0.05)
        costs = Costs(ms_per_batch=(10.0, 10.0), num_samples=1000)
        journal = simulate(job, places_of([10, 10]), costs, (fault,)).journal
        told = [c.text for _, commands in journal for c in commands if isinstance(c, Alert)]
        assert len(told) == 1
        assert "layer.weight of rank 1" in told[0]


def rejoining(mode: str, *faults: Fault) -> tuple[dict[int, int], str, list[str]]:
    """Three ranks of which rank 1 dies early: restarts, how the run ended, what people were told of comebacks."""
    membership = MembershipConfig(rejoin=True, max_restarts=2, timeout_scale=0.02)
    job = job_of(mode, trainer=TrainerConfig(num_epochs=1, batch_size=10), membership=membership)
    death = Fault(kind="death", rank=1, at_seconds=0.2, notice_ms=1.0)
    costs = Costs(ms_per_batch=(10.0,) * 3, num_samples=3000)
    done = simulate(job, places_of([10] * 3), costs, (death, *faults))
    told = [c.text for _, commands in done.journal for c in commands if isinstance(c, Alert) and "back" in c.text]
    assert done.end.totals.samples_done == 3000
    return done.end.totals.restarts, done.end.status, told


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_a_dead_rank_comes_back_as_another_process(mode: str) -> None:
    restarts, status, told = rejoining(mode)
    assert (restarts, status) == ({1: 1}, "done")
    (text,) = told
    assert text.startswith("rank 1 (cpu of here) is back after 0.")
    assert text.endswith(" s (restart 1 of 2)")


def test_replacements_that_die_or_have_built_another_model_do_not_come_back() -> None:
    tries = (("stillborn", 2, "killed by SIGKILL"), ("foreign", 1, "the models' tensors differ"))  # which no try mends
    for kind, count, why in tries:
        restarts, status, told = rejoining("cpu_cadence", Fault(kind=kind, rank=1, nth=2))  # type: ignore[arg-type]
        assert (restarts, status) == ({1: count}, "degraded")
        assert len(told) == count
        assert all(why in text for text in told)
    assert rejoining("cpu_cadence", Fault(kind="unready", rank=1, nth=2))[:2] == ({1: 1}, "degraded")
