"""task=compare from the command line: which runs are meant, what is written where, and slips told all at once."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from flodl.__main__ import main
from flodl.errors import ConfigError, TaskFindings
from flodl.record.folder import RunFolder
from flodl.record.result import Run, failed_result
from flodl.record.sweep import SweepFolder
from flodl.report.compare import compare, comparison_json
from flodl.tasks.side_by_side import tell
from tests.conf.composing import CONF
from tests.report.folders import arm_in, run_in


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """outputs/ with two runs of a day, and a sweep of two arms, which is the newest."""
    root = tmp_path_factory.mktemp("project")
    for i, mode in enumerate(("cpu_async", "cpu_sync")):
        run_in(root / "outputs" / "2026-01-0 1" / f"12-00-0{i}-ab", mode, 7)
    sweep = SweepFolder(root / "outputs" / "multirun" / "2026-01-02" / "s")
    arms = [arm_in(sweep.path, f"{seed}", "cpu_cadence", seed) for seed in (0, 1)]
    sweep.write_comparison(comparison_json(compare(arms)), "")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made / "outputs", tmp_path / "outputs")
    for i, spec in enumerate(sorted((tmp_path / "outputs").rglob("spec.json"))):  # a copy keeps no order of its own
        os.utime(spec, (1_700_000_000 + i, 1_700_000_000 + i))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    return tmp_path


def given(**changes: object) -> dict[str, object]:
    """The task's arguments as its file has them, with changes."""
    shipped = yaml.safe_load((CONF / "task" / "compare.yaml").read_text())
    return {**shipped, **changes}


def compared(capsys: pytest.CaptureFixture[str], *runs: str) -> dict[str, object]:
    tell(given(runs=list(runs) or ["last"], json=True, write=None))
    return json.loads(capsys.readouterr().out)


def names(document: dict[str, object]) -> list[str]:
    return [arm["name"] for arm in document["arms"]]  # type: ignore[attr-defined]


def test_runs_are_folders_patterns_folders_of_folders_or_the_last(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = "12-00-00-ab", "12-00-01-ab"
    day = "outputs/2026-01-0 1"
    assert names(compared(capsys, f"{day}/{one}", f"{day}/{two}", f"{day}/{one}")) == [one, two]
    assert names(compared(capsys, f"{day}/12-*")) == [one, two]
    assert names(compared(capsys, f"{here}/{day}")) == [one, two]
    assert names(compared(capsys)) == ["0", "1"], "last: the sweep of the newest run"
    whole = compared(capsys, "outputs")
    assert len(names(whole)) == 4
    groups = {group["name"]: group["seeds"] for group in whole["groups"]}  # type: ignore[attr-defined]
    assert groups == {"elche.mode=cpu_async": [7], "elche.mode=cpu_sync": [7], "elche.mode=cpu_cadence": [0, 1]}


def test_a_comparison_is_printed_and_written_in_three_forms(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=compare", "runs='outputs/2026-01-0 1'", "by=quality", "target.metric=loss",
                 "target.value=0.9", "write=side by side"]) == 0  # fmt: skip
    told = capsys.readouterr().out
    assert "elche.mode=cpu_async is best by evaluated loss at epoch 4" in told
    folder = SweepFolder(here / "side by side")
    document = json.loads(folder.comparison_json_path.read_text())
    assert document["target"] == {"metric": "loss", "value": 0.9, "less": True, "is_given": True}
    assert document["conclusion"] in folder.comparison_page_path.read_text()
    assert "elche.mode=cpu\\_async is best" in folder.comparison_markdown_path.read_text()
    tell(given())
    assert SweepFolder(here / "outputs/multirun/2026-01-02/s").comparison_page_path.is_file(), "a sweep's lies with it"
    tell(given(runs=["outputs/2026-01-0 1"]))
    assert len(list((here / "outputs" / "compare").glob("*/comparison.html"))) == 1


def test_no_run_is_compared_twice(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, sweep = "outputs/2026-01-0 1", "outputs/multirun/2026-01-02/s"
    tell(given(runs=[day]))  # leaves a comparison of runs that lie elsewhere under outputs/compare
    tell(given(runs=[f"{day}/12-00-00-ab"], write=day))  # and one, of one of them, among the runs
    capsys.readouterr()
    assert len(names(compared(capsys, "outputs"))) == 4
    assert len(names(compared(capsys, day))) == 2
    assert len(names(compared(capsys, "outputs/compare/*"))) == 2, "by its own name it means its runs"
    assert len(names(compared(capsys, sweep, f"{sweep}/0"))) == 2
    (here / "again").symlink_to(here / day, target_is_directory=True)
    assert len(names(compared(capsys, day, "again"))) == 2


def test_what_was_refused_is_passed_over_where_folders_are_searched(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slip = RunFolder(here / "outputs/2026-01-0 1/13-00-00-ab")
    shutil.copytree(here / "outputs/2026-01-0 1/12-00-00-ab", slip.path)
    slip.write_result(failed_result(ConfigError("a slip"), Run(mode="auto", average="auto", world_size=0)))
    assert names(compared(capsys, "outputs/2026-01-0 1")) == ["12-00-00-ab", "12-00-01-ab"]
    assert names(compared(capsys, "outputs/2026-01-0 1/1*")) == ["12-00-00-ab", "12-00-01-ab"]
    assert names(compared(capsys)) == ["0", "1"], "nor is it the last one"
    assert names(compared(capsys, "outputs/2026-01-0 1/*0-ab", f"{slip.path}")) == ["12-00-00-ab", "13-00-00-ab"]


def test_a_sweep_that_is_compared_elsewhere_finds_its_runs_from_there(here: Path) -> None:
    tell(given(write="elsewhere"))
    folder = SweepFolder(here / "elsewhere")
    page = folder.comparison_page_path.read_text()
    assert "Timelines of the ranks" in page
    links = re.findall(r'href="([^"]*report.html)"', page)
    assert links == [], "a page links nothing that does not lie beside it"
    arms = json.loads(folder.comparison_json_path.read_text())["arms"]
    assert [Path(arm["folder"]).is_dir() for arm in arms] == [True, True]
    tell(given())
    assert (
        'href="0/report.html"' in SweepFolder(here / "outputs/multirun/2026-01-02/s").comparison_page_path.read_text()
    )


def test_what_only_one_job_has_tells_it_from_others_and_what_it_is_called_does_not(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [RunFolder(here / "outputs/multirun/2026-01-02/s" / name) for name in ("0", "1")]

    def groups(schema: int = 1, **changes: object) -> dict[str, list[int]]:
        """With changes to the second one's job."""
        for number, folder in enumerate(folders):
            document = json.loads(folder.spec_path.read_bytes())
            document["job"] |= {"callbacks": {"eval_fn": None}, "model": {"width": 8}}
            document["job"] |= changes if number else {}
            document["schema"] = schema if number else 1
            folder.spec_path.write_text(json.dumps(document))
        found = compared(capsys, *(str(folder.path) for folder in folders))
        return {group["name"]: group["seeds"] for group in found["groups"]}  # type: ignore[attr-defined]

    assert groups() == {"all arms": [0, 1]}
    assert groups(name="other", objective="eval.loss", logger={"own": {"_target_": "a.b"}}, sim={"jitter": 0.5}) == {
        "all arms": [0, 1]
    }
    assert groups(callbacks={"eval_fn": {"_target_": "own.judge"}}) == {
        "callbacks.eval_fn=null": [0],
        "callbacks.eval_fn._target_=own.judge": [1],
    }
    assert groups(model={"width": 8, "dropout": 0.5}) == {"~model.dropout": [0], "model.dropout=0.5": [1]}
    assert groups(2, model={"width": 8, "dropout": 0.5}) == {"all arms": [0, 1]}, "another version may have it always"


def test_a_folder_that_cannot_be_written_in_costs_the_files_and_not_the_tables(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").write_text("")
    for place in ("file", "file/below", "/proc/x"):
        assert main(["task=compare", f"write={place}"]) == 1
        said = capsys.readouterr()
        assert "elche=cpu_cadence: 2 of 2 ended well" in said.out or "all arms: 2 of 2 ended well" in said.out
        assert f"write={here / place if place[0] != '/' else place}: cannot be written: " in said.err
        assert said.err.rstrip().endswith("; name another folder, or null")
    assert (here / "file").read_text() == ""
    assert main(["task=compare", "runs=[]"]) == 2
    assert "runs=[]: names none; name run folders, or last" in capsys.readouterr().err


def test_slips_are_told_together_with_what_there_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=compare", "by=speed", "epoch=0", "target.value=1", "model=mlp"]) == 2
    assert "model=mlp: is ignored by task=compare" in capsys.readouterr().err

    def refused(**changes: object) -> str:
        with pytest.raises(ConfigError) as caught:
            tell(given(**changes))
        return str(caught.value)

    told = refused(by="speed", epoch=0, target={"metric": None, "value": 1.0, "mode": "auto"})
    assert "by=speed: there is no such criterion; auto, time_to_target, quality" in told
    assert "epoch=0: must be a whole number from 1" in told
    assert "target.metric=null: nobody knows what shall reach 1" in told
    told = refused(target={"metric": "loss", "value": float("nan"), "mod": "min"})
    assert "target.value=nan: must be a number, or null, and finite" in told
    assert "target.mod" in told
    assert "target=0.9: must be a block of keys" in refused(target=0.9)
    told = refused(runs=["outputs", "nowhere", "outputs/compare"])
    assert "runs=nowhere: no run folder lies there" in told
    assert "runs: no run folder lies there" in refused(runs=[""]), "and not all that lies here"
    assert "runs=outputs/compare: no run folder lies there" in told
    told = refused(metric="f1", epoch=9)
    assert "metric=f1: none of these runs has such a figure; they have accuracy, loss, train_loss" in told
    assert "epoch=9: the longest run has 4" in told
    (here / "outputs/2026-01-0 1/12-00-00-ab/result.json").unlink()
    with pytest.raises(TaskFindings):
        tell(given(runs=["outputs/2026-01-0 1/12-00-00-ab"], write=None))
    assert "No arm ended well" in capsys.readouterr().out
