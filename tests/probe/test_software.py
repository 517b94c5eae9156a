"""Which torch and which NCCL a rank would load."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from flodl.probe import software

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler makes a library to load")


def library(place: Path, body: str) -> str:
    """A shared library with this C text."""
    source = place.with_suffix(".c")
    source.write_text(body)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(place), str(source)], check=True, timeout=60)
    return str(place)


def test_the_installed_versions_are_read_without_an_import() -> None:
    torch, cuda = software.torch_build()
    assert torch.partition("+")[0] == metadata.version("torch").partition("+")[0]
    assert "+cpu" not in torch or cuda == ""
    assert software.distribution_version("msgspec") == metadata.version("msgspec")
    assert software.distribution_version("no-such-thing") == ""
    assert software.has_module("msgspec")
    assert not software.has_module("no_such_thing")


def test_a_build_for_cuda_says_so_in_its_version_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    text = "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n"
    (tmp_path / "torch" / "version.py").write_text(text)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert software.torch_build() == ("2.13.0+cu130", "13.0")


@pytest.mark.parametrize(("number", "version"), [(22705, "2.27.5"), (2804, "2.8.4"), (21903, "2.19.3")])
def test_nccls_numbers(number: int, version: str) -> None:
    assert software.nccl_version(number) == version


@needs_compiler
def test_a_preloaded_nccl_is_asked_itself(tmp_path: Path) -> None:
    path = library(tmp_path / "libnccl.so.2", "int ncclGetVersion(int* v) { *v = 22705; return 0; }")
    found = software.nccl_library(f"/other.so:{path}", "", has_cuda=False)
    assert (found.path, found.version, found.trouble, found.is_preloaded) == (path, "2.27.5", "", True)


@needs_compiler
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("int x;", "ncclGetVersion"),
        ("int ncclGetVersion(int* v) { return 3; }", "ncclGetVersion fails"),
        ("int ncclGetVersion(int* v) { return *(volatile int*) 0; }", "crashes"),
    ],
)
def test_a_library_that_fails_takes_nothing_along(tmp_path: Path, body: str, words: str) -> None:
    found = software.nccl_library(library(tmp_path / "libnccl.so.2", body), "", has_cuda=False)
    assert found.version == ""
    assert words in found.trouble


@needs_compiler
def test_a_build_for_cuda_finds_it_by_the_library_path_and_one_without_has_none(tmp_path: Path) -> None:
    library(tmp_path / "libnccl.so.2", "int ncclGetVersion(int* v) { *v = 22602; return 0; }")
    found = software.nccl_library("", f":{tmp_path}", has_cuda=True)
    assert found.path.endswith("libnccl.so.2")
    assert software.nccl_library("", str(tmp_path), has_cuda=False).path == ""


def test_preloads_that_are_not_there_are_named(tmp_path: Path) -> None:
    there = tmp_path / "libx.so"
    there.touch()
    assert software.missing_preloads(f"{there}:/none/liby.so libz.so") == ("/none/liby.so",)
    assert software.nccl_library("/none/libnccl.so.2", "", has_cuda=True).trouble
