"""Going on with a run, as far as that can be told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.record.folder import RunFolder
from flodl.record.text import typed
from flodl.spec.codec import canonical_json, sha256
from tests.decide.hands import Hand
from tests.record.bundles import save
from tests.tasks.conftest import Flodl


@pytest.fixture
def left(here: Path) -> RunFolder:
    """A run of two epochs whose controller is gone."""
    folder, job = RunFolder.adopt(here / "run"), Hand().job
    folder.write_spec(canonical_json(job), sha256(job))
    folder.status.begin()
    said = folder.status_path.read_text()
    folder.status_path.write_text(said.replace('"start_ticks": ', '"start_ticks": 1'))
    return folder


def saved(folder: RunFolder, *, epochs: int) -> None:
    hand = Hand()
    snapshot = hand.coordinator.snapshot()
    snapshot["state"]["epochs_ended"] = list(range(epochs))
    save(folder.bundles(hand.job.checkpoint), 4, coordinator=snapshot)


@pytest.mark.parametrize("words", [(), ("checkpoint.stem=other",), ("launch.dry_run=true",)])
def test_who_saved_nothing_is_to_be_started_again(flodl: Flodl, left: RunFolder, words: tuple[str, ...]) -> None:
    done = flodl("task=resume", "run=run", *words)
    assert done.code == 2
    again = f"to start it again: python -m flodl task=rerun {typed('spec', str(left.spec_path))}\n"
    assert f"{left.path}: ended before anything was saved; {again}" in done.err


def test_who_has_only_begun_to_train_may_save_yet(flodl: Flodl, left: RunFolder) -> None:
    left.status.begin()  # this process
    done = flodl("task=resume", "run=run", "launch.dry_run=true")
    assert f"{left.path}: has saved nothing yet; it saves as checkpoint.every_epochs says" in done.err


def test_a_dry_run_refuses_what_cannot_be_gone_on_from_and_touches_nothing(flodl: Flodl, left: RunFolder) -> None:
    saved(left, epochs=1)
    before = sorted(left.path.rglob("*"))
    done = flodl("task=resume", "run=run", "launch.dry_run=true")
    assert (done.code, done.err) == (0, "")
    assert "averaging   cpu_cadence" in done.out
    done = flodl("task=resume", "run=run", "trainer.num_epochs=1", "launch.dry_run=true")
    assert (done.code, done.out) == (2, "")
    assert "nothing is left to do: 1 epoch is done" in done.err
    done = flodl("task=resume", "run=run", "checkpoint.stem=other", "launch.dry_run=true")
    assert "holds no bundle called other; name the folder and the stem" in done.err
    assert sorted(left.path.rglob("*")) == before
