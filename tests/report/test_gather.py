"""Folders as they are found: of runs that went on, go on still, were killed, or whose files are torn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from flodl.record.folder import RunFolder
from flodl.record.status import StatusFile
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.compare import Question, compare, comparison_json
from flodl.report.comparison_page import comparison_page
from flodl.report.figures import Figures
from flodl.report.gain import gain
from flodl.report.gather import arms_of_runs, arms_of_sweep
from flodl.spec.stop import TargetConfig
from tests.report.folders import arm_in, run_in


def figures(arms: list[Arm], number: int, question: Question | None = None) -> Figures:
    found = compare(arms, question).arms[number].figures
    assert found is not None
    return found


def went_on(root: Path, name: str, origin: Path, first: int) -> RunFolder:
    """A run as it would be had it gone on from `origin` with that epoch (from 1)."""
    result = run_in(root / name, "cpu_async", 0)
    folder = RunFolder(root / name)
    lines = [line for line in folder.metrics_path.read_text().splitlines() if json.loads(line)["epoch"] >= first - 1]
    folder.metrics_path.write_text("\n".join(lines) + "\n")
    spec = json.loads(folder.spec_path.read_text())
    spec["job"]["checkpoint"] |= {"resume_from": str(origin)}
    folder.spec_path.write_text(json.dumps(spec))
    ranks = tuple(msgspec.structs.replace(rank, samples=rank.samples // 2) for rank in result.per_rank)
    folder.write_result(msgspec.structs.replace(result, per_rank=ranks))
    return folder


def test_a_run_that_went_on_is_shown_and_reckoned_from_its_first_epoch_of_all(tmp_path: Path) -> None:
    run_in(tmp_path / "whole", "cpu_async", 0)
    whole, first = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "first")
    shutil.copytree(whole.path, first.path)
    second = went_on(tmp_path, "second", first.path, 3)
    third = went_on(tmp_path, "third", second.path, 4)
    arms = arms_of_runs([whole, third])
    assert [point.epoch for point in arms[1].epochs] == [1, 2, 3, 4]
    seconds = [point.seconds for point in arms[1].epochs]
    assert seconds == sorted(seconds)
    assert compare(arms).groups[0].name == "all arms", "that it went on is no difference"
    assert figures(arms, 1).loss_per_second == pytest.approx(figures(arms, 0).loss_per_second, rel=0.05)
    result = arms[1].result
    assert result is not None
    assert gain(result) is None, "the rate is that of both, the ranks are those of the second"
    shutil.rmtree(first.path)
    alone = arms_of_runs([second])
    easy = Question(target=TargetConfig(metric="loss", value=9.0))
    assert figures(alone, 0).loss_per_second is None
    assert figures(alone, 0, easy).seconds_to_target is None, "it may have been reached in an epoch that is not known"


def test_a_run_that_goes_on_still_or_was_killed_is_shown_and_counts_for_nothing(tmp_path: Path) -> None:
    for name in ("done", "running", "killed"):
        run_in(tmp_path / name, "cpu_async", 0)
    folders = [RunFolder(tmp_path / name) for name in ("done", "running", "killed")]
    for folder in folders[1:]:
        folder.result_path.unlink()
    StatusFile(folders[1].status_path, "x").write(None)
    arms = arms_of_runs(folders)
    assert [arm.status for arm in arms] == ["done", "running", "interrupted"]
    assert "no result" in arms[2].reason
    found = compare(arms)
    assert found.groups[0].ended_well == 1
    for number in (1, 2):
        assert figures(arms, number).metric_at_epoch == figures(arms, 0).metric_at_epoch
        assert figures(arms, number).utilisation is None
    assert comparison_page(found, {}).count('class="running"') == 2


@pytest.mark.parametrize("text", ["", "{", '{"schema": 9}', "\x00\x00", "[]"])
def test_torn_files_cost_what_was_in_them_and_are_named(tmp_path: Path, text: str) -> None:
    run_in(tmp_path / "run", "cpu_async", 0)
    folder = RunFolder(tmp_path / "run")
    for path in (folder.metrics_path, folder.journal_path, folder.spec_path, folder.status_path):
        path.write_text(text)
    assert arms_of_runs([folder])[0].status == "done"
    folder.result_path.write_text(text)
    arm = arms_of_runs([folder])[0]
    assert arm.status == "interrupted"
    assert "cannot be read" in arm.reason
    compare([arm])


def test_arms_that_a_killed_sweep_did_not_tell_of_are_found_beside_the_others(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    arms = [arm_in(tmp_path, name, "cpu_async", seed) for seed, name in enumerate(("0.2", "1"))]
    sweep.write_comparison(comparison_json(compare(arms)), "")
    arm_in(tmp_path, "0", "cpu_async", 0)  # a first try, which is told as 0.2
    arm_in(tmp_path, "2", "cpu_sync", 0)
    RunFolder(tmp_path / "2").result_path.unlink()
    hydra = RunFolder(tmp_path / "2").choices_path
    hydra.parent.mkdir()
    hydra.write_text("hydra: {runtime: {choices: {}}, overrides: {task: [elche=cpu_sync, trainer.seed=0]}}")
    found = arms_of_sweep(sweep)
    assert [arm.name for arm in found] == ["0.2", "1", "2"]
    assert found[2].overrides == ("elche=cpu_sync", "trainer.seed=0")
    assert found[2].status == "interrupted"
