"""FAULTS rows 1, 2, 4 to 9 and 26: ranks of a real run die, hang, leave early, slow down and run out of memory; the
others go on. Several faults share a run where each can still be told from the others."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from flodl.decide.messages import (
    Alert,
    Average,
    AveragingDone,
    BundleKept,
    Finish,
    GroupFormed,
    RankDied,
    RankFailed,
    RunWindow,
    SaveBegun,
    WindowDone,
)
from flodl.engine.failpoints import Failpoint
from flodl.record.bundle import BundleStore
from tests.chaos.stage import BATCH, SCALE, Stage, Tale

NOTICED_SECONDS = 0.5
BEAT = 1.0 * SCALE
DEAD, STEP = 30.0 * SCALE, 60.0 * SCALE


def kill(*ranks: int, point: str = "step.before", **where: int) -> Failpoint:
    return Failpoint(point=point, action="kill", ranks=ranks, **where)  # type: ignore[arg-type]


@pytest.mark.row(1)
def test_a_killed_rank_is_noticed_at_once_and_the_next_round_is_accepted_within_two_windows(
    stage: Stage, tmp_path: Path
) -> None:
    tale = stage.run(tmp_path / "run", faults=[kill(1, window=6)])
    tale.assert_whole(dead=[1])
    died, at = tale.deaths[1], tale.struck[1]
    assert died.cause == "was ended by SIGKILL"
    assert died.at - at <= NOTICED_SECONDS
    rounds = tale.accepted_at()
    window = max(later - earlier for earlier, later in itertools.pairwise(end for end in rounds if end < at))
    assert min(end for end in rounds if end > died.at) - died.at <= 2 * window


@pytest.mark.row(2)
@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_killed_in_the_first_middle_and_last_part_of_an_averaging_a_contribution_counts_wholly_or_not_at_all(
    stage: Stage, tmp_path: Path, mode: str
) -> None:
    parts = [
        kill(1, point="average.first", window=3),
        kill(2, point="average.middle", window=6),
        kill(3, point="average.last", window=9),
    ]
    tale = stage.run(tmp_path / "run", f"elche={mode}", faults=parts, ranks=5)
    tale.assert_whole(dead=[1, 2, 3])
    assert set(tale.deaths) == {1, 2, 3}
    if mode == "cpu_cadence":
        one, other = stage.met()
        done = [event for event in tale.events(WindowDone) if isinstance(event, WindowDone) and event.batches]
        both = {event.round for event in done if event.rank == 0} & {event.round for event in done if event.rank == 4}
        assert len(one & other) >= len(both) >= 9, "survivors began every window with the same weights"
        assert_weighs_what_was_accepted(tale)


@pytest.mark.row(1)
def test_a_window_that_was_ordered_before_a_death_is_trained_by_who_reads_of_both_at_once(
    stage: Stage, tmp_path: Path
) -> None:
    """Rank 0 is in a long step past its planned point while the next window begins, and a rank dies in it."""
    long = Failpoint(point="step.before", action="slow", ranks=(0,), window=3, times=100, seconds=0.3)
    tale = stage.run(tmp_path / "run", "elche=cpu_async", faults=[long, kill(1, point="step.inside", window=4)])
    tale.assert_whole(dead=[1])
    windows = [order for order in tale.commands(RunWindow) if isinstance(order, RunWindow) and order.to == (0,)]
    ordered = next(order for order in windows if order.rounds[0].number == 4)
    reports = [event for event in tale.events(WindowDone) if isinstance(event, WindowDone) and event.rank == 0]
    done = next(event for event in reports if event.round == 4)
    assert ordered.generation < done.generation, "it was ordered before the death, and ended after it"


@pytest.mark.row(1)
def test_a_death_costs_nobody_else_while_a_rank_evaluates_for_longer_than_an_averaging_may_take(
    stage: Stage, tmp_path: Path
) -> None:
    """It hears of the next group when it has ended; the others wait for it until then."""
    scale = 0.03
    evaluates = Failpoint(point="callback", action="slow", ranks=(0,), epoch=0, seconds=1.6 * 60.0 * scale)
    job = ("eval.every_epochs=1", "callbacks.policy=0", f"membership.timeout_scale={scale}")
    tale = stage.run(tmp_path / "run", *job, faults=[evaluates, kill(2, point="step.inside", epoch=1, skip=6)])
    tale.assert_whole(dead=[2])
    formed = [event.at for event in tale.events(GroupFormed) if isinstance(event, GroupFormed) and event.generation > 1]
    assert max(formed) - tale.struck[2] > 60.0 * scale


@pytest.mark.row(10)
def test_a_rank_that_dies_while_the_first_group_forms_is_left_behind_where_fewer_may_start(
    stage: Stage, tmp_path: Path
) -> None:
    """Who waits for it in the rendezvous is sent home before it hears of the next group."""
    tale = stage.run(tmp_path / "run", "cluster.controller.join.min_ranks=2", faults=[kill(0, point="group")])
    tale.assert_whole(dead=[0])
    assert not tale.failures


def assert_weighs_what_was_accepted(tale: Tale) -> None:
    """Round 3, of which nobody can have had a result, was repeated by the survivors without the dead."""
    first, again = [order for order in tale.commands(Average) if isinstance(order, Average) and order.round == 3]
    assert (first.to, again.to) == ((0, 1, 2, 3, 4), (0, 2, 3, 4))
    assert again.masses == first.masses[:1] + first.masses[2:]
    done = [event for event in tale.events(AveragingDone) if isinstance(event, AveragingDone) and event.round == 3]
    assert {(event.rank, event.generation) for event in done} == {(rank, again.generation) for rank in again.to}


@pytest.mark.row(4, 6, 8)
def test_each_way_to_end_is_named_and_the_last_rank_goes_on_alone(stage: Stage, tmp_path: Path) -> None:
    ways = ("raise", "abort", "segv", "exit")
    faults = [
        Failpoint(point="step.inside", action=action, ranks=(rank,), window=3 * rank)
        for rank, action in enumerate(ways, start=1)
    ]
    tale = stage.run(tmp_path / "run", faults=faults, ranks=5)
    tale.assert_whole(dead=[1, 2, 3, 4])
    assert "rank 1 (cpu of localhost): RuntimeError: failpoint step.inside" in tale.end.reason, "the first cause"
    assert [(event.rank, event.kind) for event in tale.failures.values()] == [(1, "step")]
    assert {rank: died.cause for rank, died in tale.deaths.items() if rank != 1} == {
        2: "was ended by SIGABRT",
        3: "was ended by SIGSEGV",
        4: "ended with exit code 0 and no goodbye",
    }


@pytest.mark.row(5, 7)
def test_ranks_that_hang_are_dead_after_their_limits_and_not_before(stage: Stage, tmp_path: Path) -> None:
    """One is stopped, the other one's training thread is stuck while its heart beats: it dies within a recovery."""
    faults = [
        Failpoint(point="step.before", action="stop", ranks=(1,), window=5),
        Failpoint(point="step.before", action="hang", ranks=(2,), window=5),
    ]
    tale = stage.run(tmp_path / "run", faults=faults, ranks=4)
    tale.assert_whole(dead=[1, 2])
    for rank, limit, words in ((1, DEAD, "nothing was heard from it"), (2, STEP, "no progress")):
        died = tale.deaths[rank]
        assert words in died.cause
        assert limit - BEAT <= died.at - tale.struck[rank] <= limit + 2 * BEAT


@pytest.mark.row(7)
def test_deaths_in_one_tick_within_a_recovery_and_of_the_callback_rank(stage: Stage, tmp_path: Path) -> None:
    faults = [
        kill(1, point="callback"),
        kill(2, point="group", skip=1),
        kill(3, 4, window=10),
    ]
    tale = stage.run(tmp_path / "run", "eval.every_epochs=1", "callbacks.policy=1", faults=faults, ranks=6)
    tale.assert_whole(dead=[1, 2, 3, 4])
    gone = [event.rank for event in tale.events(RankDied, RankFailed) if isinstance(event, (RankDied, RankFailed))]
    assert sorted(gone) == [1, 2, 3, 4], "one event per rank"
    told = [command.text for command in tale.commands(Alert) if isinstance(command, Alert)]
    assert "the evaluation of epoch 1 is lost with rank 1" in told
    judges = {event.rank for event in tale.events(WindowDone) if isinstance(event, WindowDone) and event.callbacks}
    assert judges & {0, 3, 4, 5} == judges != set(), "the role has moved"


@pytest.mark.row(8)
def test_max_failure_saves_with_the_freshest_survivor_and_ends_as_failed(stage: Stage, tmp_path: Path) -> None:
    tale = stage.run(tmp_path / "run", "membership.max_failure=1", faults=[kill(1, window=6)])
    assert (tale.end.status, tale.end.exit_code) == ("failed", 4), tale.shown
    assert "rank 1 (cpu of localhost): was ended by SIGKILL (1 of 3 ranks died" in tale.end.reason
    (save,) = [save for save in tale.commands(SaveBegun) if isinstance(save, SaveBegun)]
    assert (save.why, save.rank != 1) == ("max_failure_exceeded", True)
    tale.assert_weights()
    assert tale.told[-1][0].at - tale.struck[1] < 5.0, "nobody waits for a dead quorum"


@pytest.mark.row(8)
def test_a_run_that_must_end_while_a_checkpoint_is_on_its_way_is_saved_once(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow disk, so that all that a rank sends a second time comes while the first is put in place."""
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (time.sleep(0.2), sync(handle)))
    faults = [
        Failpoint(point="save.sending", action="slow", ranks=(0, 1), seconds=0.5),
        kill(2, point="average.before", epoch=1),
    ]
    # rank 0 saves, whoever is fastest
    job = ("checkpoint.every_epochs=1", "membership.max_failure=1", "callbacks.policy=0")
    tale = stage.run(tmp_path / "run", *job, faults=faults)
    assert (tale.end.status, tale.end.exit_code) == ("failed", 4), tale.shown
    asked = [(save.rank, save.round, save.why) for save in tale.commands(SaveBegun) if isinstance(save, SaveBegun)]
    assert [(rank, why) for rank, _, why in asked] == [(0, "checkpoint"), (0, "max_failure_exceeded")]
    assert asked[0][1] == asked[1][1], "of one round"
    kept = [event for event in tale.events(BundleKept) if isinstance(event, BundleKept)]
    assert [(event.rank, event.error) for event in kept] == [(0, "")]
    (bundle,) = BundleStore(tale.folder / "checkpoints").bundles()
    assert bundle.meta.reason == "max_failure_exceeded"
    tale.assert_weights()


@pytest.mark.row(8)
def test_when_all_ranks_are_lost_the_newest_bundle_says_so(stage: Stage, tmp_path: Path) -> None:
    faults = [kill(0, 1, 2, point="step.inside", epoch=2, skip=3)]
    tale = stage.run(tmp_path / "run", "checkpoint.every_epochs=1", faults=faults)
    assert (tale.end.status, tale.end.exit_code) == ("failed", 4), tale.shown
    assert "no rank is left" in tale.end.reason
    newest = BundleStore(tale.folder / "checkpoints").load().bundle
    assert (newest.meta.epoch in (1, 2), newest.meta.reason) == (True, "all_ranks_lost")


@pytest.mark.row(8)
@pytest.mark.parametrize(("slow_at", "code"), [("", 4), ("save.sending", 5)], ids=["all of it was sent", "a part"])
def test_all_ranks_are_lost_while_the_first_bundle_is_on_its_way(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_at: Any, code: int
) -> None:
    """Whether there is something to go on from is said when that is known, and nobody waits for what will not come."""
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (time.sleep(0.3), sync(handle)))
    slow = [Failpoint(point=slow_at, action="slow", ranks=(0, 1, 2), seconds=5.0)] if slow_at else []
    faults = [kill(0, 1, 2, point="step.inside", epoch=1, skip=20), *slow]
    tale = stage.run(tmp_path / "run", "checkpoint.every_epochs=1", faults=faults)
    assert (tale.end.status, tale.end.exit_code) == ("failed", code), tale.shown
    assert "no rank is left" in tale.end.reason
    assert len(BundleStore(tale.folder / "checkpoints").bundles()) == (code == 4)
    assert tale.told[-1][0].at - max(tale.struck.values()) < 5.0


@pytest.mark.row(8)
def test_a_round_that_does_not_come_about_ends_the_run_with_a_save(stage: Stage, tmp_path: Path) -> None:
    """An averaging thread is stuck while its rank's heart beats: nobody is dead, and nobody is blamed."""
    scale = 0.03
    hang = Failpoint(point="average.first", action="hang", ranks=(1,), window=6)
    tale = stage.run(tmp_path / "run", f"membership.timeout_scale={scale}", faults=[hang])
    assert (tale.end.status, tale.end.exit_code) == ("failed", 4), tale.shown
    assert "round 6 was not averaged in 9 s, and no rank is known to be dead" in tale.end.reason
    assert (tale.deaths, tale.failures) == ({}, {})
    (save,) = [save for save in tale.commands(SaveBegun) if isinstance(save, SaveBegun)]
    assert (save.why, save.round) == ("reduce_stall", 5)
    tale.assert_weights()


@pytest.mark.row(9)
def test_shares_follow_a_rank_that_is_slowed_to_a_fifth_and_come_back_and_nobody_is_evicted(
    stage: Stage, tmp_path: Path
) -> None:
    first, freed = 6, 16
    slow = [
        Failpoint(point="step.inside", action="slow", ranks=(1,), window=number, times=10**6, seconds=0.016)
        for number in range(first, freed)
    ]
    fixed = ("elche.anchor=4", "elche.max_anchor=4", "trainer.num_epochs=2")
    tale = stage.run(tmp_path / "run", *fixed, faults=slow, samples=280 * BATCH)
    tale.assert_whole()
    shares = shares_by_round(tale, 1)
    for begun in (first, freed):
        ideal = ideal_share(tale, 1, range(begun + 1, begun + 6))
        assert shares[begun + 5] == pytest.approx(ideal, rel=0.25), shares
    assert ideal_share(tale, 1, range(first + 1, first + 6)) < 0.25, "slowed indeed"


def ideal_share(tale: Tale, rank: int, rounds: range) -> float:
    """A rank's part of what all did per second of their own compute in these rounds."""
    seconds: dict[int, list[float]] = {}
    for done in tale.events(WindowDone):
        if isinstance(done, WindowDone) and done.round in rounds:
            seconds.setdefault(done.rank, []).append(done.timed_ms / done.timed_batches)
    speeds = {each: 1 / statistics.median(taken) for each, taken in seconds.items()}
    return speeds[rank] / sum(speeds.values())


def shares_by_round(tale: Tale, rank: int) -> dict[int, float]:
    """Round -> a rank's part of the batches that were ordered for it."""
    batches: dict[int, dict[int, int]] = {}
    for order in tale.commands(RunWindow):
        assert isinstance(order, RunWindow)
        batches.setdefault(order.rounds[0].number, {})[order.to[0]] = order.rounds[0].batches
    return {number: each.get(rank, 0) / sum(each.values()) for number, each in batches.items()}


@pytest.mark.row(26)
def test_out_of_memory_halves_the_slices_or_refuses_the_rank_and_changes_no_number(
    stage: Stage, tmp_path: Path
) -> None:
    faults = [
        Failpoint(point="step.inside", action="memory", ranks=(1,), window=3, times=2),
        Failpoint(point="step.inside", action="memory", ranks=(2,), window=5, times=100),
    ]
    tale = stage.run(tmp_path / "run", faults=faults)
    tale.assert_whole(dead=[2])
    told = [command.text for command in tale.commands(Alert) if isinstance(command, Alert) and command.rank == 1]
    assert [text.rpartition("slices of ")[2] for text in told if "out of memory" in text] == ["8", "4"]
    assert "rank 2 (cpu of localhost): one sample of a batch does not fit" in tale.failures[2].message
    assert "free" in tale.failures[2].message


@pytest.mark.row(5)
def test_a_rank_that_hangs_when_all_is_saved_holds_the_end_up_for_an_averagings_limit_and_no_longer(
    stage: Stage, tmp_path: Path
) -> None:
    scale = 0.05
    asked = (f"membership.timeout_scale={scale}", "trainer.num_epochs=1", "callbacks.policy=0")
    hang = Failpoint(point="finish", action="hang", ranks=(2,))
    tale = stage.run(tmp_path / "run", *asked, "debug.eval_everywhere=false", faults=[hang])
    assert (tale.end.status, tale.end.exit_code, list(tale.end.totals.dead_ranks)) == ("degraded", 0, [2])
    released = min(
        event.at for event, said in tale.told for order in said if isinstance(order, Finish) if 2 in order.to
    )
    limit = 60.0 * scale
    assert limit <= tale.told[-1][0].at - released <= limit + 0.5
    tale.assert_weights()
