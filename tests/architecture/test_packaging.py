"""What is shipped: the wheel holds code and conf, runs from another folder, and its pins fit what it asks for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flodl.__main__ import PACKAGES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree without a registry."""
    place = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(place.glob("*.whl"))


def test_the_wheel_holds_every_module_every_choice_and_the_console_script(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        entry_points = archive.read(next(n for n in held if n.endswith("entry_points.txt"))).decode()
    tracked = subprocess.run(
        ["git", "ls-files", "flodl", "conf", "launch"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    ).stdout.split()
    there = [name for name in tracked if (ROOT / name).exists()]
    expected = {f"flodl/{name}" if name.startswith("conf/") else name.removeprefix("launch/") for name in there}
    assert expected - held == set()
    assert "flodl/conf/config.yaml" in held
    assert "flodl = flodl.__main__:main" in entry_points
    assert not any(name.startswith(("tests/", "conf/", "outputs/", "launch/")) for name in held)


def test_it_composes_from_the_wheel_in_another_folder(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    elsewhere = tmp_path / "another folder"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "flodl", "cluster=rehearsal", "--cfg", "job", "--resolve"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "local_devices: cpu:2" in done.stdout
    assert list(elsewhere.iterdir()) == []


def test_ssh_and_the_launcher_are_found_from_the_wheel_and_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import flodl_launch.transport as a, hydra_plugins.flodl_ssh as b; print(a.__file__); print(b.__file__)"
    for place, env in ((tmp_path / "site", {"PYTHONPATH": str(tmp_path / "site")}), (ROOT / "launch", {})):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=tmp_path,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert [Path(line).is_relative_to(place) for line in done.stdout.split()] == [True, True]


def test_what_is_read_beside_the_code_is_in_the_wheel(wheel: Path) -> None:
    beside = {p for p in (ROOT / "flodl").rglob("*.*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert {"page.css", "page.js"} <= {path.name for path in beside}
    with zipfile.ZipFile(wheel) as archive:
        assert {str(path.relative_to(ROOT)) for path in beside} - set(archive.namelist()) == set()


def test_every_direct_dependency_is_pinned_within_what_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(text) for text in project["dependencies"]]
    asked += [Requirement(text) for extra in project["optional-dependencies"].values() for text in extra]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if line and not line.startswith("#"))
    }
    unpinned = [r.name for r in asked if r.name != "flodl" and canonicalize_name(r.name) not in pins]
    assert unpinned == []
    outside = [str(r) for r in asked if r.name != "flodl" and pins[canonicalize_name(r.name)] not in r.specifier]
    assert outside == []
    assert pins["torch"] == "2.13.0"


def test_every_dependency_says_why_it_is_one() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = text[text.index("dependencies = [") : text.index("[project.optional-dependencies]")]
    bare = [line for line in block.splitlines()[1:] if line.strip().startswith('"') and "#" not in line]
    assert bare == []


def test_every_dependency_is_known_by_the_name_that_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(PACKAGES.values()) == {Requirement(text).name for text in project["dependencies"]}
    assert [name for name in PACKAGES if importlib.util.find_spec(name) is None] == []


BUILDERS = ["Makefile", ".ci/run", ".pre-commit-config.yaml", "pyproject.toml", "constraints.txt"]


@pytest.mark.parametrize("name", BUILDERS)
def test_what_builds_the_house_names_no_host_and_no_path_of_a_machine(name: str) -> None:
    text = (ROOT / name).read_text()
    assert [word for word in ("http://", "https://", "/home/", "/root", "/opt/", "/work") if word in text] == []
