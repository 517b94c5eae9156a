"""FAULTS rows 1, 2 and 4 to 9: ranks of a real run die, hang, leave early and slow down; the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.decide.messages import Average, AveragingDone, RunWindow, SaveBegun
from tests.chaos.struck import LIMITS, Fault, Story, Struck, struck

NOTICED_SECONDS = 0.5


def goes_on(run: Struck, story: Story, dead: tuple[int, ...] = (1,)) -> None:
    """Degraded, with everything done once and equal survivors."""
    result = run.command.result
    assert (result["status"], result["dead_ranks"]) == ("degraded", list(dead))
    assert (result["epochs_done"], result["samples_done"]) == (6, 6 * 1488)
    figures = story.figures()
    assert set(figures) == {0, 1, 2} - set(dead)
    assert len({tuple(sorted(values.items())) for values in figures.values()}) == 1, figures


def test_a_killed_rank_is_noticed_at_once_and_the_next_round_is_accepted_within_two_windows(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(kind="kill")) as run:
        assert run.end() == 0, run.command.output
        story, at = run.story, run.struck_at(1)
    goes_on(run, story)
    (died,) = story.deaths
    assert (died.rank, died.cause) == (1, "was ended by SIGKILL")
    assert died.at - at <= NOTICED_SECONDS
    assert story.next_accepted(died.at) <= 2 * story.window_seconds(at), story.window_seconds(at)


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
@pytest.mark.parametrize("part", ["first", "middle", "last"])
def test_killed_in_an_averaging_a_contribution_counts_wholly_or_not_at_all(
    tmp_path: Path, part: str, mode: str
) -> None:
    with struck(tmp_path, Fault(kind=part, count=4), mode=mode) as run:
        assert run.end() == 0, run.command.output
        story = run.story
    goes_on(run, story)
    assert [died.rank for died in story.deaths] == [1]


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("raise", "ValueError: a label of 12 in ten classes"), ("abort", "SIGABRT"), ("segv", "SIGSEGV")],
)
def test_what_a_step_does_to_its_rank_is_named_as_the_first_cause(tmp_path: Path, kind: str, cause: str) -> None:
    with struck(tmp_path, Fault(kind=kind)) as run:
        assert run.end() == 0, run.command.output
        story = run.story
    goes_on(run, story)
    assert cause in run.command.result["reason"]
    assert "rank 1 (cpu of localhost)" in run.command.result["reason"]
    assert [failure.rank for failure in story.failures] == ([1] if kind == "raise" else [])


def test_zero_without_a_goodbye_is_a_death(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(kind="exit0")) as run:
        assert run.end() == 0, run.command.output
        story = run.story
    goes_on(run, story)
    assert "ended with exit code 0 and no goodbye" in run.command.result["reason"]


@pytest.mark.parametrize(("kind", "limit"), [("stop", "dead"), ("hang", "step")])
def test_a_rank_that_hangs_is_dead_after_the_limit_and_not_before(tmp_path: Path, kind: str, limit: str) -> None:
    with struck(tmp_path, Fault(kind=kind)) as run:
        assert run.end() == 0, run.command.output
        story, at = run.story, run.struck_at(1)
    goes_on(run, story)
    (died,) = story.deaths
    assert died.rank == 1
    assert LIMITS[limit] - LIMITS["heartbeat"] <= died.at - at <= LIMITS[limit] + 2 * LIMITS["heartbeat"]
    assert ("nothing was heard" if kind == "stop" else "no progress") in died.cause


def test_two_ranks_die_at_once_and_the_last_one_goes_on_alone(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(kind="kill", ranks=(0, 2))) as run:
        assert run.end() == 0, run.command.output
        story = run.story
    goes_on(run, story, dead=(0, 2))
    assert sorted(died.rank for died in story.deaths) == [0, 2], "one event per rank"


def test_max_failure_saves_with_the_freshest_survivor_and_ends_as_failed(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(kind="kill"), "membership.max_failure=1") as run:
        assert run.end() == 4, run.command.output
        story, at = run.story, run.struck_at(1)
        assert (run.command.folder / "run/checkpoints/weights.safetensors").is_file()
    (save,) = [c for event, said in story.told if event.at > at for c in said if isinstance(c, SaveBegun)]
    assert save.why == "max_failure_exceeded"
    assert run.command.result["status"] == "failed"
    assert "rank 1 (cpu of localhost): was ended by SIGKILL (1 of 3 ranks died" in run.command.result["reason"]
    assert story.told[-1][0].at - at < 5.0, "nobody waits for a dead quorum"


def test_shares_follow_a_rank_that_is_slowed_and_come_back_and_nobody_is_evicted(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(), "trainer.num_epochs=20", "elche.max_anchor=10", slow="1:60:120:5") as run:
        assert run.end(120) == 0, run.command.output
        story = run.story
    assert run.command.result["status"] == "done"
    assert story.deaths == []
    shares = [share_of(1, said) for _, said in story.told if any(isinstance(c, RunWindow) for c in said)]
    assert min(shares) <= 1.25 / 11 + 0.02, "a fifth of the speed: one part of eleven"
    assert max(shares[-8:]) >= 0.75 / 3


def share_of(rank: int, said: tuple[object, ...]) -> float:
    """A rank's part of the batches of the windows that are ordered together."""
    batches = {c.to[0]: sum(one.batches for one in c.rounds) for c in said if isinstance(c, RunWindow)}
    return batches.get(rank, 0) / sum(batches.values())


def test_an_averaging_weighs_what_was_accepted(tmp_path: Path) -> None:
    with struck(tmp_path, Fault(kind="first", count=4)) as run:
        assert run.end() == 0, run.command.output
        story = run.story
    orders = [c for _, said in story.told for c in said if isinstance(c, Average) and c.round == 4]
    assert [len(order.masses) for order in orders] == [3, 2], "repeated by the survivors, without the dead"
    assert orders[1].masses == (orders[0].masses[0], orders[0].masses[2])
    done = [e for e, _ in story.told if isinstance(e, AveragingDone) and e.round == 4]
    assert {(e.rank, e.generation) for e in done} == {(0, 2), (2, 2)}
