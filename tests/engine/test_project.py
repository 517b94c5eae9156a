"""Which files of the project a rank has imported, and what their versions are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flodl.engine.project import project_files


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder with a hostile name, on sys.path; what was imported from it is forgotten afterwards."""
    folder = tmp_path / "größe $(touch x) 'p'"
    (folder / "nets_of_mine").mkdir(parents=True)
    (folder / "nets_of_mine" / "__init__.py").write_text("")
    (folder / "nets_of_mine" / "wide.py").write_text("WIDTH = 8\n")
    (folder / "steps_of_mine.py").write_text("import nets_of_mine.wide\n")
    (folder / "never_imported.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_imported_files_are_named_by_their_place_in_the_project(project: Path) -> None:
    importlib.import_module("steps_of_mine")
    found = project_files(project)
    assert sorted(found) == ["nets_of_mine/__init__.py", "nets_of_mine/wide.py", "steps_of_mine.py"]
    assert all(len(digest) == 16 for digest in found.values())


def test_the_hash_is_of_the_bytes_and_not_of_the_folder(project: Path, tmp_path: Path) -> None:
    importlib.import_module("steps_of_mine")
    before = project_files(project)
    (project / "nets_of_mine" / "wide.py").write_text("WIDTH = 9\n")
    after = project_files(str(project))
    assert {name for name in before if before[name] != after[name]} == {"nets_of_mine/wide.py"}
    (project / "nets_of_mine" / "wide.py").write_text("WIDTH = 8\n")
    assert project_files(project) == before


def test_a_file_that_is_gone_differs_from_one_that_is_there(project: Path) -> None:
    importlib.import_module("steps_of_mine")
    before = project_files(project)
    (project / "steps_of_mine.py").unlink()
    assert project_files(project) == before | {"steps_of_mine.py": "gone"}


def test_a_project_that_is_reached_by_a_link_has_the_same_names(project: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    importlib.import_module("steps_of_mine")
    assert project_files(link) == project_files(project)


def test_libraries_and_environments_are_no_part_of_the_project(project: Path) -> None:
    site = project / "envs" / "sm61" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "a_library_of_the_test.py").write_text("")
    sys.path.insert(0, str(site))
    try:
        importlib.import_module("a_library_of_the_test")
    finally:
        sys.path.remove(str(site))
    assert project_files(project) == {}
    assert not [name for name in project_files(Path(sys.prefix).parent) if "site-packages" in name]


def test_a_module_that_only_calls_itself_a_file_is_no_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = importlib.import_module("torch")
    assert not Path(torch.ops.__file__).is_absolute(), "torch does so, and a working folder would lend it a place"
    monkeypatch.chdir(project)
    assert project_files("", [torch.ops]) == {}
