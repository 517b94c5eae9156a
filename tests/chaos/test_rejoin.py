"""Dead ranks come back: another process for their device, at a round's edge, with what the others hold."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from flodl import trainer
from flodl.decide.messages import (
    Alert,
    Command,
    Dismiss,
    Event,
    FormGroup,
    Goodbye,
    RankReady,
    Restart,
    RunWindow,
    WindowDone,
)
from flodl.engine.failpoints import SWITCH, Failpoint
from flodl.record.folder import RunFolder
from tests.chaos.stage import SCALE, Stage, Tale
from tests.conf import composing

TRAINS_SECONDS = 3.0
NOISE = 0.02  # of the accuracy on 300 digits
LONG = ("membership.rejoin=true", "trainer.num_epochs=8")
STEP_SECONDS = 0.02
HALF_LIFE = 5000  # samples


def killed(*ranks: int, window: int = 4) -> Failpoint:
    """In a step for that round: a later process of the rank never comes there."""
    return Failpoint(point="step.inside", action="kill", ranks=ranks, window=window)


def trained_after_seconds(tale: Tale, rank: int) -> float:
    """From the moment when the replacement was up to the report of its first window."""
    up = next(event.at for event in tale.events(RankReady) if isinstance(event, RankReady) and event.incarnation)
    joined = next(c.generation for c in tale.commands(FormGroup) if isinstance(c, FormGroup) and rank in c.joiners)
    windows = [event for event in tale.events(WindowDone) if isinstance(event, WindowDone) and event.rank == rank]
    return next(event.at for event in windows if event.generation >= joined) - up


def told(tale: Tale) -> list[str]:
    return [command.text for command in tale.commands(Alert) if isinstance(command, Alert)]


@pytest.mark.parametrize(
    ("mode", "ranks", "more"),
    [
        ("cpu_sync", 2, ()),  # a lone survivor's partner
        ("cpu_cadence", 3, ()),
        ("cpu_async", 3, ()),
        ("cpu_async", 3, ("elche.easgd_alpha=0.5", "checkpoint.every_epochs=1")),
    ],
)
def test_a_killed_rank_is_replaced_and_nothing_is_lost_or_counts_twice(
    stage: Stage, tmp_path: Path, mode: str, ranks: int, more: tuple[str, ...]
) -> None:
    tale = stage.run(
        tmp_path / "run", f"elche={mode}", *LONG, *more, faults=[killed(1)], ranks=ranks, seconds=STEP_SECONDS
    )
    tale.assert_whole()
    assert tale.end.totals.restarts == {1: 1}, tale.shown
    assert trained_after_seconds(tale, 1) <= TRAINS_SECONDS
    (back,) = [text for text in told(tale) if "is back" in text]
    assert back.startswith("rank 1 (cpu of localhost) is back after ")
    assert back.endswith(" s (restart 1 of 3)")
    assert "restarted once" in tale.shown
    log = (tale.folder / "controller.log").read_text()
    assert "restart: rank 1 (cpu of localhost) is started again, restart 1" in log


def newest_outer(folder: Path) -> tuple[int, dict[str, Any]]:
    """The round of the newest bundle, and its outer member."""
    number = json.loads((folder / "checkpoints" / "model.meta.json").read_text())["round"]
    return number, load_file(folder / "checkpoints" / f"model.r{number}.outer.fdl")


def digits(folder: Path, *faults: Failpoint) -> Tale:
    """Three ranks of 20 ms a step."""
    slow = Failpoint(point="step.before", action="slow", ranks=(0, 1, 2), times=10**6, seconds=STEP_SECONDS)
    Path(os.environ[SWITCH]).write_bytes(msgspec.json.encode([slow, *faults]))
    with composing.shipped():
        job = composing.job(
            (
                "cluster.workers=[{host: localhost, local_devices: 'cpu:3', nccl_socket_ifname: lo}]",
                "elche=cpu_cadence",
                "model=mlp",
                "optim=adamw",
                "trainer.batch_size=16",
                "trainer.num_epochs=6",
                "eval.every_epochs=null",
                "membership.rejoin=true",
                f"membership.timeout_scale={SCALE}",
                "outer=diloco",
                f"trainer.ema={HALF_LIFE}",
                "callbacks.policy=1",  # the replaced one saves what it was handed
            )
        )
    said = io.StringIO()
    end = trainer.run(job, RunFolder.adopt(folder), console=Console(file=said))
    return Tale(folder, end, said.getvalue())


def test_a_run_whose_rank_was_replaced_learns_what_it_would_have_learnt(stage: Stage, tmp_path: Path) -> None:
    struck = digits(tmp_path / "struck", killed(1, window=5))
    whole = digits(tmp_path / "whole")
    assert (struck.end.status, struck.end.totals.restarts) == ("done", {1: 1}), struck.shown
    assert (whole.end.status, whole.end.totals.restarts) == ("done", {}), whole.shown
    assert struck.end.totals.samples_done == whole.end.totals.samples_done
    assert trained_after_seconds(struck, 1) <= TRAINS_SECONDS
    for name in ("accuracy", "ema_accuracy"):
        assert struck.end.totals.eval[name] == pytest.approx(whole.end.totals.eval[name], abs=NOISE)
    for tale in (struck, whole):  # what rides on the consensus has taken every round in
        rounds, outer = newest_outer(tale.folder)
        assert outer["velocity/."] == rounds
        assert outer["ema/."] == pytest.approx(1.0 - 0.5 ** (tale.end.totals.samples_done / HALF_LIFE), rel=0.05)


def test_a_rank_that_dies_of_its_own_step_is_restarted_three_times_and_given_up(stage: Stage, tmp_path: Path) -> None:
    fault = Failpoint(point="step.inside", action="raise", ranks=(1,), skip=8)
    more = ("membership.rejoin=true", "trainer.num_epochs=12")
    tale = stage.run(tmp_path / "run", *more, faults=[fault], seconds=STEP_SECONDS)
    tale.assert_whole(dead=(1,))
    assert tale.end.totals.restarts == {1: 3}
    assert "it was restarted 3 times (membership.max_restarts) and is given up" in told(tale)[-1]
    restarts = [event.at for event, said in tale.told if any(isinstance(command, Restart) for command in said)]
    deaths = [event.at for event, said in tale.told if any("died" in c.text for c in said if isinstance(c, Alert))]
    pauses = [restart - death for restart, death in zip(restarts, deaths, strict=False)]
    assert all(pause >= SCALE * 2.0**number - 1e-6 for number, pause in enumerate(pauses)), pauses


def test_a_survivor_that_dies_while_the_newcomer_joins_comes_back_too(stage: Stage, tmp_path: Path) -> None:
    third_group = Failpoint(point="group", action="kill", ranks=(0,), skip=2)  # after the start and the first recovery
    tale = stage.run(tmp_path / "run", *LONG, faults=[killed(1), third_group], seconds=STEP_SECONDS)
    tale.assert_whole()
    assert tale.end.totals.restarts == {0: 1, 1: 1}, tale.shown


def test_a_rank_that_was_stopped_as_it_came_back_judges_the_epoch_that_the_run_is_in(
    stage: Stage, tmp_path: Path
) -> None:
    """It has trained nothing: its figures were those of the first epoch."""
    sent: list[int] = []

    def hear(event: Event, commands: Sequence[Command]) -> None:
        if not sent and any(isinstance(command, FormGroup) and command.joiners for command in commands):
            sent.append(1)
            os.kill(os.getpid(), signal.SIGTERM)

    asked = ("trainer.num_epochs=30", "callbacks.policy=1", "membership.rejoin=true")
    tale = stage.run(tmp_path / "run", *asked, faults=[killed(1, window=12)], seconds=0.01, hear=hear)
    assert (tale.end.status, tale.end.totals.restarts) == ("interrupted", {1: 1}), tale.shown
    goodbyes = [event for event in tale.events(Goodbye) if isinstance(event, Goodbye)]
    judged = {event.rank: result.epoch for event in goodbyes for result in event.callbacks if result.name == "eval"}
    assert len(judged) == 3
    (epoch,) = set(judged.values())
    assert epoch > 0
    assert epoch - tale.end.totals.epochs_done in (-1, 0), "it is under way, or ends with the round that is the last"


def test_a_stop_while_a_replacement_starts_leaves_nothing_behind(stage: Stage, tmp_path: Path) -> None:
    sent: list[float] = []

    def hear(event: Event, commands: Sequence[Command]) -> None:
        if not sent and any(isinstance(command, Restart) for command in commands):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

    tale = stage.run(tmp_path / "run", *LONG, faults=[killed(1)], seconds=STEP_SECONDS, hear=hear)
    assert (tale.end.status, tale.end.exit_code) == ("interrupted", 75), tale.shown
    assert [command.rank for command in tale.commands(Dismiss) if isinstance(command, Dismiss)] == [1]
    assert not any(1 in c.to for c in tale.commands(RunWindow)[-2:] if isinstance(c, RunWindow))
    tale.assert_weights()
