"""Runs that a rule ends, and learning rates against samples: real processes, the whole command."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import MultiStepLR

from flodl import drive, trainer
from flodl.decide.messages import Finish, Goodbye, GroupFormed, RunWindow, TimeReached, WindowDone
from flodl.decide.schedule import Cosine, Step
from flodl.record.journal import read_journal
from flodl.record.metrics import read_intervals, read_metrics
from flodl.spec.codec import load_spec
from tests.e2e.command import LONG, Command, command

LIMIT_SECONDS = 4.0
QUICK = ("model=mlp", "trainer.num_epochs=2", "eval.every_epochs=null", "hydra.run.dir=run")


def told(run: Command) -> list[tuple[Any, tuple[Any, ...]]]:
    """The journal, replayed first: a fresh coordinator says the same."""
    header, entries = read_journal(run.folder / "run" / "journal.jsonl")
    job = trainer.resolved(load_spec(run.folder / "run" / "spec.json"), header.roster)
    again = list(drive.replay([event for event, _ in entries], job, header.roster))
    assert again == [commands for _, commands in entries]
    return entries


def at_of(entries: list[tuple[Any, tuple[Any, ...]]], kind: type) -> list[float]:
    return [event.at for event, commands in entries if any(isinstance(command, kind) for command in commands)]


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_max_time_ends_within_one_window_and_the_save(tmp_path: Path, mode: str) -> None:
    with command(tmp_path, *LONG, f"elche={mode}", f"stop.max_time={LIMIT_SECONDS}") as run:
        assert run.end(90.0) == 0, run.output
        entries = told(run)
        orders = at_of(entries, RunWindow)
        longest = max(later - sooner for sooner, later in pairwise(orders))
        took = entries[-1][0].at - orders[0]
        assert took < LIMIT_SECONDS + longest + 1.0
        assert took > LIMIT_SECONDS - longest - 1.0
        assert run.result["status"] == "stopped"
        assert run.result["reason"] == f"stop.max_time={LIMIT_SECONDS}: the time is up"
        assert "checkpoints/weights.safetensors" in run.result["checkpoints"]
        assert run.result["eval"]["accuracy"] > 0.5, "the end is evaluated"


def test_within_a_long_window_the_deadline_comes_as_an_event_and_cuts_it(tmp_path: Path) -> None:
    long_window = ("elche.max_anchor=100000", "elche.anchor=100000", "trainer.limit_batches=20")
    slow = ("cluster=rehearsal", "cluster.workers.0.speed=[0.01,0.005]")  # a window of about a minute
    with command(tmp_path, *LONG, *slow, *long_window, "stop.max_time=2s") as run:
        assert run.end(90.0) == 0, run.output
        entries = told(run)
        (reached,) = [event for event, _ in entries if isinstance(event, TimeReached)]
        assert reached.at - at_of(entries, RunWindow)[0] == pytest.approx(2.0, abs=0.5)
        assert entries[-1][0].at - reached.at < 3.0
        assert run.result["rounds"] == 1


def test_early_stopping_ends_all_ranks_together(tmp_path: Path) -> None:
    rule = ("stop.early.metric=accuracy", "stop.early.patience=2", "stop.early.min_delta=0.5", "eval.every_epochs=1")
    arguments = ("cluster=rehearsal4", "elche=cpu_cadence", *rule)
    with command(tmp_path, *LONG, *arguments) as run:
        assert run.end(90.0) == 0, run.output
        entries = told(run)
        assert run.result["status"] == "stopped"
        assert run.result["reason"].startswith("stop.early: accuracy")
        last = [event.round for event, _ in entries if isinstance(event, WindowDone)]
        assert last.count(max(last)) == 4, "everybody's work is in the last round"
        assert sorted(event.rank for event, _ in entries if isinstance(event, Goodbye)) == [0, 1, 2, 3]
        assert run.result["dead_ranks"] == []
        asked = [command for _, commands in entries for command in commands if isinstance(command, Finish)]
        assert sorted(rank for command in asked for rank in command.to) == [0, 1, 2, 3]


def test_a_broken_evaluation_and_an_unknown_figure_end_the_run_before_it_begins(tmp_path: Path) -> None:
    with command(tmp_path, *LONG, "eval.metrics=[acuracy]", "eval.every_epochs=1") as run:
        assert run.end(90.0) == 2, run.output
        assert "eval.metrics[0]=acuracy: an evaluation tells accuracy, loss" in run.output
        assert "did you mean accuracy?" in run.output
        assert run.result["rounds"] == 0


def test_a_trial_batch_comes_from_one_rank_and_parts_of_an_epoch_are_recorded(tmp_path: Path) -> None:
    short = ("cluster=rehearsal", "elche=cpu_cadence", "elche.anchor=2", "elche.max_anchor=2", "elche.max_batch_diff=0")
    with command(tmp_path, *QUICK, *short, "trainer.reports_per_epoch=3", "eval.every_epochs=1") as run:
        assert run.end(90.0) == 0, run.output
        trials = [event.trial for event, _ in told(run) if isinstance(event, GroupFormed)]
        assert sorted(trial is None for trial in trials) == [False, True]
        metrics = run.folder / "run" / "metrics.jsonl"
        parts = read_intervals(metrics)
        assert {part.epoch for part in parts} == {0, 1}
        assert all(0 < part.samples < 1472 for part in parts)
        assert [epoch.eval.keys() for epoch in read_metrics(metrics)] == [{"accuracy", "loss"}] * 2


# ---------------------------------------------------------------------------------------- rates against samples

SCHEDULES = {
    "cosine": ("scheduler=cosine", "scheduler.warmup_samples=600"),
    "step": ("scheduler=step", "scheduler.at=[0.3,0.8]"),
    "multistep": ("scheduler=multistep", "scheduler.milestones=[7,21,39]", "scheduler.gamma=0.5"),
}
WORLDS = {1: "local", 2: "rehearsal", 4: "rehearsal4"}  # ranks -> cluster
RUNS = [  # each schedule, each number of ranks; in cpu_async batches may run on past the order that a window is told by
    ("cosine", 1, "auto"),
    ("cosine", 2, "cpu_sync"),
    ("cosine", 4, "cpu_cadence"),
    ("step", 2, "cpu_cadence"),
    ("multistep", 4, "cpu_sync"),
]
TOTAL, BATCH, BASE = 2 * 1472, 64, 0.1  # two epochs of digits in batches of 64


def places_and_rates(run: Command) -> list[tuple[float, float]]:
    """(samples of the run dealt before a window's last batch, the rate of that batch) of every window of every rank."""
    windows: dict[tuple[int, int], RunWindow] = {}
    found: list[tuple[float, float]] = []
    for event, commands in told(run):
        if isinstance(event, WindowDone) and event.batches:
            last = [one for one in windows[event.rank, event.round].rounds if one.batches][-1]
            samples = last.samples_before + (last.batches - 1) / last.batches * last.samples
            found.append((samples, event.learning_rate))
        for order in commands:
            if isinstance(order, RunWindow):
                windows |= {(rank, order.rounds[-1].number): order for rank in order.to}
    return found


def wanted(name: str) -> Any:
    """The rate at a number of samples, as one process would have it."""
    if name == "cosine":
        curve = Cosine(warmup=600 / TOTAL)
        return lambda samples: BASE * curve(samples / TOTAL)
    if name == "step":
        step = Step(at=(0.3, 0.8))
        return lambda samples: BASE * step(samples / TOTAL)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = MultiStepLR(optimizer, [7, 21, 39], gamma=0.5)
    rates: list[float] = []
    for _ in range(TOTAL // BATCH):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return lambda samples: rates[int((samples + 1e-6) // BATCH)]


@pytest.mark.parametrize(("name", "num_ranks", "mode"), RUNS)
def test_the_rate_is_the_same_function_of_samples_on_1_2_and_4_uneven_ranks(
    tmp_path: Path, name: str, num_ranks: int, mode: str
) -> None:
    world = (f"cluster={WORLDS[num_ranks]}", f"elche={mode}", "elche.anchor=2", "elche.max_anchor=2")
    with command(tmp_path, *QUICK, *SCHEDULES[name], *world) as run:
        assert run.end(90.0) == 0, run.output
        seen = places_and_rates(run)
    several = 2 if mode == "cpu_sync" else 4  # one window of a grant holds many rounds
    assert len({samples for samples, _ in seen}) >= several, "the curve is seen at several places"
    curve = wanted(name)
    for samples, rate in seen:
        assert rate == pytest.approx(curve(samples), rel=1e-9), samples
    assert (run.result["status"], run.result["epochs_done"]) == ("done", 2)
    assert run.result["world_size"] == num_ranks
    assert mode in (run.result["mode"], "auto")
    assert 0 < run.result["startup_seconds"] < 90
    assert "checkpoints/weights.safetensors" in run.result["checkpoints"]
