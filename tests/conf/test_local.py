"""./conf/local/default.yaml: what holds on one machine only. It overrides the defaults, and everything typed wins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flodl.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    return tmp_path


def own(here: Path, group: str, choice: str, text: str) -> None:
    file = here / "conf" / group / f"{choice}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def composed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--cfg", "job"]) == 0
    return capsys.readouterr().out


LOCAL = "# @package _global_\ndefaults: [{override /cluster: mine}]\ntrainer: {seed: 5}\n"


@pytest.fixture
def rig(here: Path) -> Path:
    own(here, "local", "default", LOCAL)
    own(here, "cluster", "mine", "defaults: [local, _self_]\nworkers: [{host: localhost, local_devices: cpu:3}]\n")
    return here


def test_without_it_nothing_is_missed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n  seed: 0\n" in composed(capsys)


def test_it_chooses_and_sets_what_holds_on_this_machine(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = composed(capsys)
    assert "local_devices: cpu:3" in shown
    assert "\n  seed: 5\n" in shown


def test_what_is_typed_wins(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = composed(capsys, "cluster=rehearsal", "trainer.seed=7")
    assert "local_devices: cpu:2" in shown
    assert "\n  seed: 7\n" in shown


def test_an_experiments_values_win(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(rig, "experiment", "mine", "# @package _global_\ntrainer: {seed: 9}\n")
    assert "\n  seed: 9\n" in composed(capsys, "experiment=mine")


def test_its_cluster_wins_over_the_environment(
    rig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLODL_CLUSTER", "rehearsal4")
    assert "local_devices: cpu:3" in composed(capsys)


def test_it_can_be_left_out(rig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n  seed: 0\n" in composed(capsys, "~local")


def test_git_does_not_take_it_in_this_checkout() -> None:
    done = subprocess.run(["git", "check-ignore", "conf/local/default.yaml"], cwd=ROOT, capture_output=True, text=True)
    if "not a git repository" in done.stderr:
        pytest.skip("no checkout")
    assert done.stdout == "conf/local/default.yaml\n"
