"""FAULTS rows 14 and 25: a signal while weights are copied and sent, numbers that are none, ranks without work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from flodl.decide.messages import Alert, BundleKept, Command, Event, SaveBegun, StopRequested, WindowDone
from flodl.engine.failpoints import Failpoint
from flodl.record.bundle import BundleStore
from tests.chaos.stage import BATCH, Stage

NOTED_SECONDS = 0.1


@pytest.mark.row(14)
@pytest.mark.parametrize("point", ["save.begin", "save.sending"])
def test_a_signal_within_a_save_is_noted_at_once_and_the_bundle_is_whole(
    stage: Stage, tmp_path: Path, point: str
) -> None:
    sent: list[float] = []

    def signal_soon() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    def hear(event: Event, commands: Sequence[Command]) -> None:
        if not sent and any(isinstance(command, SaveBegun) for command in commands):
            sent.append(0.0)
            threading.Thread(target=signal_soon).start()

    slow = Failpoint(point=point, action="slow", ranks=(0, 1, 2), seconds=1.0)  # type: ignore[arg-type]
    tale = stage.run(tmp_path / "run", "checkpoint.every_epochs=1", "trainer.num_epochs=50", faults=[slow], hear=hear)
    assert (tale.end.status, tale.end.exit_code) == ("interrupted", 75), tale.shown
    (asked,) = [event for event in tale.events(StopRequested) if isinstance(event, StopRequested)]
    assert asked.at - sent[1] < NOTED_SECONDS
    kept = [event for event in tale.events(BundleKept) if isinstance(event, BundleKept)]
    assert kept[0].at > asked.at, "while it was under way"
    assert (kept[-1].error, kept[-1].round) == ("", tale.learnt().rounds)
    bundles = BundleStore(tale.folder / "checkpoints", "model").bundles()
    assert bundles
    assert all(BundleStore(tale.folder / "checkpoints", "model").fault(bundle) is None for bundle in bundles)
    tale.assert_weights()


@pytest.mark.row(25)
@pytest.mark.parametrize("mode", ["cpu_cadence"])
def test_a_contribution_that_is_no_number_is_left_out_and_counted(stage: Stage, tmp_path: Path, mode: str) -> None:
    tale = stage.run(tmp_path / "run", f"elche={mode}", "trainer.num_epochs=2", poison=777)
    assert (tale.end.status, tale.end.exit_code) == ("done", 0), tale.shown
    weights = tale.assert_weights()
    assert weights[777] == 0.0, "it was in no round"
    told = [command.text for command in tale.commands(Alert) if isinstance(command, Alert)]
    assert len([text for text in told if "weight of rank" in text and "is not finite" in text]) == 2, "once per epoch"


@pytest.mark.row(25)
def test_ranks_for_which_there_are_no_samples_are_idle_and_take_part(stage: Stage, tmp_path: Path) -> None:
    tale = stage.run(tmp_path / "run", ranks=4, samples=2 * BATCH)
    tale.assert_whole()
    worked = {event.rank for event in tale.events(WindowDone) if isinstance(event, WindowDone) and event.samples}
    assert len(worked) < 4
