"""A bridge between hosts whose NCCL differ: from a wheel or from source, for those that need it, where it fits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flodl.errors import ConfigError, TaskFindings
from flodl.tasks import host_nccl
from flodl.tasks.host_nccl import archs_of, covers, version_of
from flodl.tasks.nccl_build import bridges, target_of
from tests.tasks.conftest import Flodl
from tests.tasks.standins import fatbin, library, nccl_wheel, nvidia_smi, program, torch_python

PASCAL, BLACKWELL = (6, 1), (12, 0)


def answer(nccl: str | None, *capabilities: tuple[int, int], cuda: str | None = "12.6") -> dict[str, object]:
    return {"nccl": nccl, "cuda": cuda, "capabilities": [list(pair) for pair in capabilities]}


def cluster(here: Path, *hosts: dict[str, object]) -> Path:
    """A cluster file of this machine under its several names."""
    names = ("localhost", "127.0.0.1", "127.0.0.2")
    workers = [{"host": name, "nccl_socket_ifname": "lo", "path": str(here / name), **host}
               for name, host in zip(names, hosts, strict=False)]  # fmt: skip
    for worker in workers:
        Path(str(worker["path"])).mkdir(exist_ok=True)
    file = here / "conf" / "cluster" / "rig.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# mine\n" + yaml.safe_dump({"defaults": ["local", "_self_"], "workers": workers}, sort_keys=False))
    return file


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def rig(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hosts: one with the newer NCCL, one with an older; cards of Pascal; pip looks into one folder only."""
    bin_folder = here / "bin"
    nvidia_smi(bin_folder, [("GTX 1060", "6.1")])
    on_path(bin_folder, monkeypatch)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (here / "links").as_uri())  # a blank would end a name there
    (here / "links").mkdir()
    new = torch_python(here / "new", "2.27.5", "12.8")
    old = torch_python(here / "old", "2.25.1", "12.6")
    return cluster(here, {"python": str(new)}, {"python": str(old), "env": {"LD_PRELOAD": "/x/libfirst.so"}})


# ---------------------------------------------------------------------------------------------------- what is wanted


def test_the_target_is_the_highest_version_of_all_hosts_by_number() -> None:
    found = {"a": answer("2.9.9"), "b": answer("2.27.5"), "c": answer(None, cuda=None)}
    assert target_of(found, None) == "2.27.5"


@pytest.mark.parametrize("tag", ["v2.28.3-1", "2.28.3", "v2.28.3", "2.28.3-2"])
def test_a_tag_is_a_version(tag: str) -> None:
    assert target_of({}, tag) == "2.28.3"


@pytest.mark.parametrize("tag", ["2.28", "master", "", 2.28, "v2.28.3; touch x", "-v2.28.3"])
def test_what_is_no_version_is_refused(tag: object) -> None:
    with pytest.raises(ConfigError, match="is no version of NCCL"):
        target_of({}, tag)


def test_without_any_nccl_there_is_nothing_to_bridge() -> None:
    with pytest.raises(TaskFindings, match="all are CPU builds"):
        target_of({"a": answer(None, cuda=None)}, None)


def test_only_hosts_of_another_minor_version_get_a_bridge() -> None:
    found = {"a": answer("2.27.5", BLACKWELL), "b": answer("2.27.3", BLACKWELL), "c": answer("2.25.1", PASCAL)}
    paths = dict.fromkeys(found, "/srv/me")
    assert [bridge.host for bridge in bridges(found, paths, "2.27.5", "wheel")] == ["c"]
    assert bridges(found, paths, "2.27.5", "wheel")[0].library == "/srv/me/nccl/v2.27.5-wheel/lib/libnccl.so.2"
    assert bridges(found, paths, "2.27.5", "source")[0].folder == "/srv/me/nccl/v2.27.5-sm61"


# ---------------------------------------------------------------------------------------------------- looking at one


def test_a_library_tells_its_version_and_what_it_runs_on(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(library("2.27.5", (61, 70, 120)))
    assert version_of(path) == "2.27.5"
    assert archs_of(path) == ["sm_120", "sm_61", "sm_70"]


def test_a_file_that_is_no_library_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(b"no library")
    with pytest.raises(RuntimeError, match="cannot be loaded and asked its version"):
        version_of(path)
    assert archs_of(path) == []


def test_a_torn_container_of_gpu_code_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = fatbin((61, 70))
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        assert set(archs_of(path)) <= {"sm_61", "sm_70"}


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (["sm_60"], (6, 1), True),
        (["sm_61"], (6, 0), False),
        (["sm_70"], (6, 1), False),
        (["sm_90"], (12, 0), False),
        (["compute_90"], (12, 0), True),
        (["compute_120"], (9, 0), False),
        (["sm_120"], (12, 1), True),
    ],
)
def test_cudas_rule(archs: list[str], capability: tuple[int, int], runs: bool) -> None:
    assert covers(archs, capability) is runs


# ---------------------------------------------------------------------------------------------------------- the task


def test_a_wheel_is_unpacked_asked_and_written_into_the_cluster_file(rig: Path, flodl: Flodl, here: Path) -> None:
    nccl_wheel(here / "links", "12", "2.27.5", library("2.27.5", (60, 120)))
    done = flodl("task=nccl_build", "cluster=rig", "write=true")
    assert done.code == 0, done
    made = here / "127.0.0.1" / "nccl" / "v2.27.5-wheel" / "lib" / "libnccl.so.2"
    assert version_of(made) == "2.27.5"
    assert not (here / "localhost" / "nccl").exists()
    assert [p.name for p in (here / "127.0.0.1" / "nccl").iterdir()] == ["v2.27.5-wheel"], "nothing temporary is left"
    assert rig.read_text().startswith("# mine\n")
    assert yaml.safe_load(rig.read_text())["workers"][1]["env"] == {"LD_PRELOAD": f"{made}:/x/libfirst.so"}
    before = made.stat()
    again = flodl("task=nccl_build", "cluster=rig")
    assert again.code == 0
    assert "is there already" in again.out
    assert (made.stat().st_ino, made.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_asks_and_makes_nothing(rig: Path, flodl: Flodl, here: Path) -> None:
    done = flodl("task=nccl_build", "cluster=rig", "launch.dry_run=true")
    assert done.code == 0, done
    assert "target      NCCL 2.27.5" in done.out
    assert "[localhost] nothing: it has NCCL 2.27 itself" in done.out
    assert "[127.0.0.1] python -m pip download --no-deps nvidia-nccl-cu12==2.27.5" in done.out
    assert not list(here.rglob("nccl"))


def test_a_wheel_without_code_for_the_card_is_refused_with_the_way_out(rig: Path, flodl: Flodl, here: Path) -> None:
    nccl_wheel(here / "links", "12", "2.27.5", library("2.27.5", (70, 120)))
    done = flodl("task=nccl_build", "cluster=rig")
    assert done.code == 1
    assert "holds code for sm_120, sm_70, and a GPU here is of 6.1: use method=source" in done.err
    assert not list((here / "127.0.0.1").rglob("libnccl*"))


def test_a_library_of_another_version_than_promised_is_refused(rig: Path, flodl: Flodl, here: Path) -> None:
    nccl_wheel(here / "links", "12", "2.27.5", library("2.26.2", (61,)))
    done = flodl("task=nccl_build", "cluster=rig")
    assert done.code == 1
    assert "says that it is NCCL 2.26.2, wanted was 2.27.5" in done.err
    assert not list((here / "127.0.0.1").rglob("libnccl*"))


def test_a_host_without_a_registry_gets_the_wheel_pushed(rig: Path, flodl: Flodl, here: Path) -> None:
    nccl_wheel(here / "links", "12", "2.27.5", library("2.27.5", (61,)))
    (here / "old" / "site" / "pip.py").write_text("raise SystemExit('ERROR: no route to a registry')\n")
    done = flodl("task=nccl_build", "cluster=rig")
    assert done.code == 0, done
    assert "[127.0.0.1] cannot download it; this machine tries, and pushes it" in done.out
    assert version_of(here / "127.0.0.1" / "nccl" / "v2.27.5-wheel" / "lib" / "libnccl.so.2") == "2.27.5"
    assert [p.name for p in (here / "127.0.0.1" / "nccl").iterdir()] == ["v2.27.5-wheel"], "the pushed wheel is gone"


def test_a_version_that_nobody_has_is_told_with_pips_words(rig: Path, flodl: Flodl) -> None:
    done = flodl("task=nccl_build", "cluster=rig", "tag=2.99.0")
    assert done.code == 1
    assert "pip cannot download nvidia-nccl-cu12==2.99.0 here either" in done.err


MAKE = """\
echo "$*" > "$HOME/make.txt"
for word in "$@"; do case "$word" in BUILDDIR=*) to="${word#BUILDDIR=}";; esac; done
mkdir -p "$to/lib" && cp "$HOME/built.so" "$to/lib/libnccl.so.2"
"""


@pytest.fixture
def builder(rig: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """make and nvcc on PATH; what make builds lies in built.so."""
    monkeypatch.setenv("HOME", str(here))
    program(here / "bin", "make", MAKE)
    program(here / "cuda" / "bin", "nvcc", "exit 0")
    (here / "bin" / "nvcc").symlink_to(here / "cuda" / "bin" / "nvcc")
    (here / "built.so").write_bytes(library("2.27.5", (61,)))
    (here / "nccl tree").mkdir()
    return here / "nccl tree"


def test_it_is_built_from_a_source_tree_for_the_cards_of_the_host(builder: Path, flodl: Flodl, here: Path) -> None:
    done = flodl("task=nccl_build", "cluster=rig", "method=source", f"source={quoted(builder)}", "jobs=3")
    assert done.code == 0, done
    made = here / "127.0.0.1" / "nccl" / "v2.27.5-sm61" / "lib" / "libnccl.so.2"
    assert version_of(made) == "2.27.5"
    asked = (here / "make.txt").read_text()
    assert asked.startswith(f"-C {builder} -j 3 src.build BUILDDIR=")
    assert "NVCC_GENCODE=-gencode=arch=compute_61,code=sm_61" in asked
    assert f"CUDA_HOME={here / 'cuda'}" in asked
    assert f'env: {{LD_PRELOAD: "{made}:/x/libfirst.so"}}' in done.out


def test_it_is_built_from_a_tag_of_a_repository(builder: Path, flodl: Flodl, here: Path) -> None:
    repository = here / "origin"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(repository)]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    (repository / "Makefile").write_text("src.build:\n")
    for words in (["add", "."], ["commit", "-q", "-m", "x"], ["tag", "v2.27.5-1"]):
        subprocess.run([*git, *words], check=True)
    done = flodl("task=nccl_build", "cluster=rig", "method=source", f"source={quoted(repository, 'file://')}")
    assert done.code == 0, done
    assert "git clone --quiet --depth 1 --branch v2.27.5-1" in done.out
    assert version_of(here / "127.0.0.1" / "nccl" / "v2.27.5-sm61" / "lib" / "libnccl.so.2") == "2.27.5"


def test_a_make_that_fails_leaves_nothing(builder: Path, flodl: Flodl, here: Path) -> None:
    program(here / "bin", "make", "echo 'no rule to make it'; exit 2")
    done = flodl("task=nccl_build", "cluster=rig", "method=source", f"source={quoted(builder)}")
    assert done.code == 1
    assert "[127.0.0.1] no rule to make it" in done.out
    assert "make ended with 2" in done.err
    assert list((here / "127.0.0.1" / "nccl").iterdir()) == []


@pytest.mark.parametrize("words", [["method=guess"], ["jobs=0"], ["jobs=many"], ["tag=newest"], ["write=perhaps"]])
def test_wrong_arguments_are_refused_before_a_host_is_asked(rig: Path, flodl: Flodl, words: list[str]) -> None:
    assert flodl("task=nccl_build", "cluster=rig", *words).code == 2


def quoted(path: Path, before: str = "") -> str:
    text = str(path).replace("'", "\\'")
    return f"'{before}{text}'"


# ------------------------------------------------------------------------------------------------------- the real one


def test_nvidias_own_wheel_loads_without_a_gpu_and_tells_its_version(tmp_path: Path) -> None:
    given = {"do": "wheel", "folder": f"{tmp_path}/nccl/v2.27.5-wheel", "version": "2.27.5", "cuda": "12.6",
             "capabilities": [[6, 1], [12, 0]], "wheel": ""}  # fmt: skip
    command = [sys.executable, host_nccl.__file__, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if "pip cannot download" in done.stderr:
        pytest.skip(f"no package registry here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stdout + done.stderr
    made = tmp_path / "nccl" / "v2.27.5-wheel" / "lib" / "libnccl.so.2"
    assert version_of(made) == "2.27.5"
    assert {"sm_61", "sm_120"} <= set(archs_of(made))
