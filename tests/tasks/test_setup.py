"""The environment of a host: the right torch for its cards, this very flodl, and what is there stays as it is.

pip looks into a folder of stub packages here, so the environments are real and the packages in them small.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from flodl.errors import TaskFindings
from flodl.probe.capability import wheel_index
from flodl.tasks.setup import environment_of
from flodl.tasks.wheel import own_wheel
from tests.tasks.conftest import Flodl
from tests.tasks.standins import nvidia_smi, program, stub_wheel

ROOT = Path(__file__).parents[2]
WHERE = (
    "import flodl, flodl_launch; from pathlib import Path; "
    "print(flodl.__file__, (Path(flodl.__file__).parent / 'conf').is_dir())"
)
NEWEST = (wheel_index((12, 0)) or ("", ""))[1]
TORCH = "class version:\n    cuda = '12.8'\n__version__ = '2.11.0+cu128'\n"


@pytest.fixture
def links(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that flodl asks for, as stubs of the oldest version that will do."""
    folder = here / "links"
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        asked = Requirement(text)
        least = next(part.version for part in asked.specifier if part.operator == ">=")
        stub_wheel(folder, asked.name, least, TORCH if asked.name == "torch" else "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


@pytest.fixture
def rig(here: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    nvidia_smi(here / "bin", [("RTX 5060 Ti, 16 GB", "12.0")])
    monkeypatch.setenv("PATH", f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}")
    file = here / "conf" / "cluster" / "rig.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\ndefaults: [local, _self_]\nworkers:\n  - host: localhost # the desk\n")
    return file


# ---------------------------------------------------------------------------------------------------- which torch


@pytest.mark.parametrize(
    ("cards", "torch", "build", "name"),
    [
        ([], "torch", "cpu", "cpu"),
        ([(6, 1)], "torch>=2.10,<2.15", "cu126", "sm61"),
        ([(6, 1), (6, 1)], "torch>=2.10,<2.15", "cu126", "sm61"),
        ([(8, 6)], "torch", "cu128", "sm86"),
        ([(12, 0)], "torch", NEWEST, "sm120"),
        ([(6, 1), (8, 6)], "torch>=2.10,<2.15", "cu126", "sm86"),
        ([(7, 5), (12, 0)], "torch", NEWEST, "sm120"),
    ],
)
def test_the_cards_choose_the_build(cards: list[tuple[int, int]], torch: str, build: str, name: str) -> None:
    found = environment_of("/srv/me", None, cards)
    assert (found.torch, found.index.rpartition("/")[2], found.folder) == (torch, build, f"/srv/me/envs/{name}")


def test_an_arch_names_the_folder() -> None:
    assert environment_of("/srv/me", "builds/old", [(6, 1)]).python == "/srv/me/envs/builds/old/bin/python"


@pytest.mark.parametrize("cards", [[(6, 1), (12, 0)], [(3, 5)]])
def test_cards_that_no_torch_serves_together_are_told(cards: list[tuple[int, int]]) -> None:
    with pytest.raises(TaskFindings, match="on runs on GPUs of capability"):
        environment_of("/srv/me", None, cards)


# ---------------------------------------------------------------------------------------------------------- the task


def test_an_environment_is_made_once_and_its_interpreter_written(rig: Path, flodl: Flodl, here: Path) -> None:
    left = here / "envs" / "sm120" / ".flodl-unfinished"  # of a setup that was interrupted
    left.parent.mkdir(parents=True)
    left.touch()
    before = rig.read_text()
    done = flodl("task=setup", "cluster=rig")
    assert done.code == 0, done
    assert "was left unfinished: made anew" in done.out
    python = here / "envs" / "sm120" / "bin" / "python"
    assert f"[localhost] {python} is ready: torch 2.11.0+cu128, CUDA 12.8, flodl {version('flodl')}" in done.out
    text = rig.read_text()
    assert text.startswith("# mine\n")
    assert "# the desk" in text
    assert yaml.safe_load(text)["workers"] == [{"host": "localhost", "python": str(python)}]
    assert sorted(p.name for p in (here / "envs").iterdir()) == ["sm120"], "the pushed wheel is gone"
    assert not left.exists()
    told = subprocess.run([python, "-c", WHERE], cwd="/", capture_output=True, text=True, check=True, timeout=60).stdout
    assert told.startswith(f"{here}/envs/sm120/lib/")
    assert told.endswith(" True\n")
    assert "nothing to make" in flodl("task=setup", "cluster=rig").out
    assert "nothing to make" in flodl("task=setup", "cluster=rig", "launch.dry_run=true").out

    rig.write_text(before)
    seen = {path: path.lstat().st_mtime_ns for path in (here / "envs").rglob("*") if "__pycache__" not in str(path)}
    done = flodl("task=setup", "cluster=rig")
    assert done.code == 0, done
    assert f"{python} was there already and is unchanged" in done.out
    assert yaml.safe_load(rig.read_text())["workers"][0]["python"] == str(python)
    assert {path: path.lstat().st_mtime_ns for path in seen} == seen

    done = flodl("task=setup", "cluster=local")  # a shipped choice is nobody's file
    assert done.code == 0, done
    assert "write into your cluster file (./conf/cluster/...):" in done.out


def test_a_folder_that_is_no_environment_is_not_touched(rig: Path, flodl: Flodl, here: Path) -> None:
    mine = here / "envs" / "sm120" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("three years")
    before = rig.read_text()
    done = flodl("task=setup", "cluster=rig")
    assert done.code == 1
    assert "is there and is no environment: it is not touched" in done.err
    assert "no interpreter was written into the cluster file" in done.err
    assert mine.read_text() == "three years"
    assert rig.read_text() == before


def test_what_pip_refuses_is_told_and_nothing_is_written(rig: Path, links: Path, flodl: Flodl, here: Path) -> None:
    next(links.glob("torch-*.whl")).unlink()
    before = rig.read_text()
    done = flodl("task=setup", "cluster=rig")
    assert done.code == 1
    assert "[localhost] ERROR: " in done.out
    assert "the environment is unfinished, and is made anew next time" in done.err
    assert (here / "envs" / "sm120" / ".flodl-unfinished").exists()
    assert rig.read_text() == before


def test_a_broken_driver_gets_no_environment_for_cpus(rig: Path, flodl: Flodl, here: Path) -> None:
    program(here / "bin", "nvidia-smi", "echo 'Driver/library version mismatch'; exit 18")
    done = flodl("task=setup", "cluster=rig")
    assert done.code == 1
    assert "localhost: nvidia-smi says: Driver/library version mismatch; mend its driver" in done.err
    assert not (here / "envs").exists()


def test_a_dry_run_makes_nothing(rig: Path, flodl: Flodl, here: Path) -> None:
    before = rig.read_text()
    done = flodl("task=setup", "cluster=rig", "launch.dry_run=true")
    assert done.code == 0
    assert f"[localhost] {here}/envs/sm120/bin/python -m pip install 'torch' --index-url " in done.out
    assert not (here / "envs").exists()
    assert rig.read_text() == before


def test_flodls_own_wheel_holds_code_choices_and_what_it_needs(tmp_path: Path) -> None:
    with zipfile.ZipFile(own_wheel(tmp_path)) as archive:
        held = set(archive.namelist())
        info = next(name for name in held if name.endswith("METADATA"))
        assert "Requires-Dist: torch" in archive.read(info).decode()
    assert {
        "flodl/__main__.py",
        "flodl/conf/config.yaml",
        "flodl_launch/execute.py",
        "hydra_plugins/flodl_ssh/__init__.py",
    } <= held
    assert not [name for name in held if "__pycache__" in name or name.startswith("tests")]
