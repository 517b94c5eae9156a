"""A run has a folder of its own, and everything in it is where the folder says."""

from __future__ import annotations

import hashlib
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from flodl.errors import ConfigError, FlodlError
from flodl.record.fate import tidy
from flodl.record.folder import RunFolder, newest_run
from flodl.record.journal import read_journal
from flodl.record.metrics import read_metrics
from flodl.record.result import Run, failed_result, read_result
from flodl.record.weights import write_weights
from flodl.spec.checkpoint import CheckpointConfig
from flodl.spec.codec import canonical_json, sha256
from tests.record.bundles import save, weights_in, weights_of
from tests.record.figures import ROSTER, STORY, run_result
from tests.scenarios.rigs import job_of

NOON = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)


def test_two_starts_in_one_second_never_share_a_folder(runs: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(RunFolder.create(runs, now=NOON).path)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16
    assert {path.parent.name for path in made} == {"2026-03-04"}
    assert all(path.name.startswith("12-00-00-") and len(path.name) == 13 for path in made)


def test_a_folder_that_hydra_made_is_adopted_and_keeps_what_is_in_it(runs: Path) -> None:
    (runs / ".hydra").mkdir()
    folder = RunFolder.adopt(runs)
    assert folder.ranks_path.is_dir()
    assert (runs / ".hydra").is_dir()


def test_a_folder_that_holds_a_run_is_not_adopted_again(runs: Path) -> None:
    RunFolder.adopt(runs).write_spec(b"{}", "0")
    with pytest.raises(FlodlError, match="holds a run already"):
        RunFolder.adopt(runs)


def test_what_a_killed_start_left_half_written_goes_with_the_next_one(runs: Path) -> None:
    run = runs / "run"
    (run / "checkpoints").mkdir(parents=True)
    ours = [".spec.json.0123abcd.tmp", ".status.json.0123abcd.tmp", "checkpoints/.mine.r7.fdl.0123abcd.tmp"]
    theirs = [".notes.txt.0123abcd.tmp", ".spec.json.tmp", "spec.json.0123abcd.tmp", "checkpoints/mine.r7.fdl"]
    for name in (*ours, *theirs):
        (run / name).touch()
    RunFolder.adopt(run)
    assert [name for name in (*ours, *theirs) if (run / name).exists()] == theirs


@pytest.mark.parametrize("is_over", [True, False], ids=["whose controller is gone", "that is under way"])
def test_a_run_that_is_gone_on_from_is_tidied_where_nobody_writes_any_more(runs: Path, is_over: bool) -> None:
    folder = RunFolder.create(runs)
    half = folder.checkpoints_path / ".checkpoint.r7.fdl.0123abcd.tmp"
    half.touch()
    tidy(folder)
    assert half.exists(), "nobody has said whose it is"
    folder.status.begin()
    if is_over:
        status = msgspec.json.decode(folder.status_path.read_bytes())
        status["controller"]["start_ticks"] -= 1  # its number was given away again
        folder.status_path.write_bytes(msgspec.json.encode(status))
    job, store = job_of("cpu_cadence"), folder.bundles(CheckpointConfig())
    folder.write_spec(canonical_json(job), sha256(job))
    for round_ in (1, 2):
        save(store, round_)
    half.touch()
    write_weights(store.bundles()[1])  # as a kill between a bundle and its weights leaves it
    tidy(folder)
    assert half.exists() != is_over
    assert weights_in(folder.checkpoints_path) == weights_of(2 if is_over else 1)


def test_the_spec_holds_schema_digest_and_job(runs: Path) -> None:
    job = b'{"trainer":{"batch_size":64}}'
    digest = hashlib.sha256(job).hexdigest()
    folder = RunFolder.adopt(runs)
    folder.write_spec(job, digest)
    assert msgspec.json.decode(folder.spec_path.read_bytes()) == {
        "schema": 1,
        "sha256": digest,
        "job": {"trainer": {"batch_size": 64}},
    }


def test_one_listener_writes_journal_metrics_and_log(runs: Path) -> None:
    folder = RunFolder.adopt(runs)
    folder.start_journal("s", ROSTER)
    for event, commands in STORY:
        folder.observe(event, commands)
    folder.close()
    folder.close()
    assert read_journal(folder.journal_path)[1] == STORY
    assert [m.epoch for m in read_metrics(folder.metrics_path)] == [0]
    log = folder.controller_log_path.read_text()
    assert "rank 0 is ready on localhost (cpu)" in log
    assert "rank 1 died: SIGKILL" in log
    assert "end: failed, exit code 5" in log


def test_a_listener_before_the_journal_was_started_is_told_so(runs: Path) -> None:
    with pytest.raises(FlodlError, match="start_journal"):
        RunFolder.adopt(runs).observe(*STORY[0])


def test_a_ranks_lines_are_prefixed_cleaned_and_the_last_20_are_kept(runs: Path) -> None:
    folder = RunFolder.adopt(runs)
    log = folder.rank_log("node a", 1, "cuda:0")
    assert folder.rank_log("node a", 1) is log
    for number in range(30):
        log.append(f"\x1b[31mline {number}\x1b[0m\n")
    log.append(b"caf\xe9")
    folder.close()
    lines = (folder.ranks_path / "node%20a.1.log").read_text().splitlines()
    assert lines[0] == "[node a:cuda:0 r1] line 0"
    assert lines[-1] == "[node a:cuda:0 r1] caf\\xe9"
    assert list(log.tail) == [f"line {n}" for n in range(11, 30)] + ["caf\\xe9"]


def test_weights_appear_whole_and_are_listed(runs: Path) -> None:
    folder = RunFolder.adopt(runs)
    assert folder.checkpoints == ()
    writer = folder.weights()
    writer.write(b"half")
    assert folder.checkpoints == ()
    writer.commit()
    assert folder.checkpoints == ("checkpoints/weights.safetensors",)


def test_weights_that_cannot_be_stored_are_told_by_path_and_reason(runs: Path) -> None:
    folder = RunFolder.adopt(runs)
    (runs / "checkpoints" / "weights.safetensors").mkdir()
    writer = folder.weights()
    writer.write(b"all")
    with pytest.raises(FlodlError, match=r"weights\.safetensors: Is a directory \(EISDIR\): the weights were not"):
        writer.commit()
    writer.abandon()
    assert [path.name for path in folder.checkpoints_path.iterdir()] == ["weights.safetensors"]


@pytest.mark.parametrize("name", ["../spec.json", "/etc/passwd", "spec.json", ""])
def test_a_rank_uploads_only_what_a_run_takes(runs: Path, name: str) -> None:
    folder = RunFolder.adopt(runs)
    with pytest.raises(FlodlError, match=r"weights\.safetensors"):
        folder.open_upload(1, name)
    with folder.open_upload(1, "weights.safetensors") as sink:
        sink.write(b"all")
    assert folder.weights_path.read_bytes() == b"all"


def test_a_result_comes_back_equal(runs: Path) -> None:
    folder = RunFolder.adopt(runs)
    folder.write_result(run_result())
    assert read_result(folder.result_path) == run_result()


def test_the_newest_run_is_the_one_whose_spec_is_newest_arms_included(runs: Path) -> None:
    places = ["2026-03-04/10-00-00-aaaa", "multirun/2026-03-04/11-00-00-bbbb/0", "2026-03-04/09-00-00-cccc"]
    for age, place in enumerate(places):
        folder = RunFolder.adopt(runs / place)
        folder.write_spec(b"{}", "0")
        os.utime(folder.spec_path, (1000 - age, 1000 - age))
    assert newest_run(runs).path == runs / places[0]
    os.utime(runs / places[1] / "spec.json", (2000, 2000))
    assert newest_run(runs).path == runs / places[1]


def test_what_was_refused_is_not_the_newest_run_unless_there_is_no_other(runs: Path) -> None:
    """A slip beside task=resume run=last would else be gone on from at the next try, for ever."""
    nothing = failed_result(ConfigError("no"), Run(mode="auto", average="auto", world_size=0))
    for age, found in enumerate((nothing, run_result(), nothing)):
        folder = RunFolder.adopt(runs / f"{age}")
        folder.write_spec(b"{}", "0")
        os.utime(folder.spec_path, (1000 + age, 1000 + age))
        folder.write_result(found)
        assert newest_run(runs).path.name == ("0" if age == 0 else "1")


def test_without_a_run_the_place_that_was_searched_is_named(runs: Path) -> None:
    with pytest.raises(FlodlError, match="größte"):
        newest_run(runs)


def test_naming_a_folder_touches_nothing(runs: Path) -> None:
    folder = RunFolder(runs / "nothing here")
    assert folder.checkpoints == ()
    assert not folder.path.exists()
