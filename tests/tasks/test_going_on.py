"""Going on with a run, as far as that can be told before anything is started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flodl.errors import Interrupted, NotReady, RunFailed, TaskFindings
from flodl.record.folder import RunFolder
from flodl.record.result import Run, failed_result
from flodl.record.status import read_status
from flodl.record.text import typed
from flodl.spec.codec import canonical_json, sha256
from flodl.tasks.stop import end_it
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


def test_who_looks_at_a_killed_run_or_would_stop_it_is_told_how_it_goes_on(flodl: Flodl, left: RunFolder) -> None:
    assert "resume" not in flodl("task=status", "run=run").out + flodl("task=stop", "run=run").out, "nothing was saved"
    saved(left, epochs=1)
    onward = f"python -m flodl task=resume {typed('run', str(left.path))}\n"
    done = flodl("task=status", "run=run")
    assert (done.code, done.out.endswith(f"\nonward      {onward}")) == (1, True)
    assert flodl("task=stop", "run=run").out.endswith(f"\n{onward}")
    gone = read_status(left.status_path).controller
    assert gone is not None
    with pytest.raises(TaskFindings, match=r"left no result(.|\n)*\npython -m flodl task=resume"):
        end_it(left, gone, 1.0)
    saved(left, epochs=2)
    assert "onward      nothing is left to go on with: all 2 epochs are done\n" in flodl("task=status", "run=run").out


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(Interrupted("SIGINT"), True), (RunFailed("lost"), True), (NotReady("no GPU"), False), (None, False)],
)
def test_of_a_run_that_has_ended_it_is_said_where_it_was_cut_short(
    flodl: Flodl, left: RunFolder, error: Exception | None, goes_on: bool
) -> None:
    found = failed_result(error or ValueError(), Run(mode="cpu_cadence", average="parameters", world_size=2))
    left.write_result(found if error else msgspec.structs.replace(found, status="done", exit_code=0))
    saved(left, epochs=1)
    for task in ("status", "stop"):
        assert ("python -m flodl task=resume" in flodl(f"task={task}", "run=run").out) == goes_on


def test_who_went_on_and_saved_nothing_goes_on_from_where_it_came(flodl: Flodl, left: RunFolder, here: Path) -> None:
    saved(left, epochs=1)
    second, job = RunFolder.adopt(here / "second"), Hand().job
    job = job.replace(checkpoint=job.checkpoint.replace(resume_from=str(left.path)))
    second.write_spec(canonical_json(job), sha256(job))
    second.status_path.write_bytes(left.status_path.read_bytes())
    assert f"task=resume {typed('run', str(second.path))}\n" in flodl("task=status", "run=second").out
