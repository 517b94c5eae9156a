"""Copies of the data look equal where they are, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flodl.probe.folder import END_BYTES, data_copies, data_copy
from flodl.probe.report import DataCopy, Question


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "one" / "set of Größe"
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(bytes(3 * END_BYTES))
    (folder / "b").mkdir()
    (folder / "b" / "small").write_text("text")
    return folder


def looks(copy: DataCopy) -> tuple[object, ...]:
    return copy.names, copy.signature, copy.ends


def twin(data: Path, tmp_path: Path) -> Path:
    other = tmp_path / "elsewhere"
    for path in sorted(data.rglob("*"), reverse=True):  # made in another order
        if path.is_file():
            (other / path.relative_to(data)).parent.mkdir(parents=True, exist_ok=True)
            (other / path.relative_to(data)).write_bytes(path.read_bytes())
    return other


def test_equal_copies_in_other_folders_look_equal(data: Path, tmp_path: Path) -> None:
    one, other = data_copy(data, ""), data_copy(twin(data, tmp_path), "")
    assert looks(one) == looks(other)
    assert (one.exists, one.num_files, one.num_bytes, one.trouble) == (True, 2, 3 * END_BYTES + 4, "")
    assert set(one.ends) == {"big", "b/small"}


@pytest.mark.parametrize("place", [0, END_BYTES - 1, 3 * END_BYTES - 1])
def test_a_flipped_byte_at_an_end_shows(data: Path, tmp_path: Path, place: int) -> None:
    other = twin(data, tmp_path)
    with (other / "big").open("r+b") as file:
        file.seek(place)
        file.write(b"x")
    one, changed = data_copy(data, ""), data_copy(other, "")
    assert one.ends["big"] != changed.ends["big"]
    assert one.names == changed.names


def test_a_copy_that_is_cut_short_or_lacks_a_file_looks_different(data: Path, tmp_path: Path) -> None:
    other = twin(data, tmp_path)
    os.truncate(other / "big", 2 * END_BYTES)
    assert data_copy(data, "").signature != data_copy(other, "").signature
    (other / "b" / "small").unlink()
    assert data_copy(data, "").names != data_copy(other, "").names


def test_hidden_files_and_what_python_leaves_are_no_data_and_links_in_a_circle_end(data: Path) -> None:
    before = data_copy(data, "")
    (data / ".cache").mkdir()
    (data / ".cache" / "x").write_text("x")
    (data / "__pycache__").mkdir()
    (data / "b" / "up").symlink_to(data)
    assert looks(data_copy(data, "")) == looks(before)


def test_a_part_may_be_one_file_and_what_is_missing_is_said_to_be(data: Path) -> None:
    question = Question(data_path=str(data), data=("b/small", "none"))
    there, gone = data_copies(question)
    assert (there.exists, there.num_files, there.num_bytes) == (True, 1, 4)
    assert (gone.exists, gone.path) == (False, str(data / "none"))


def test_the_data_folder_is_below_the_project_where_none_is_named(data: Path) -> None:
    [copy] = data_copies(Question(path=str(data.parent), data=("x",)))
    assert copy.path == str(data.parent / "data" / "x")


def test_what_cannot_be_read_is_told_with_its_path(data: Path) -> None:
    (data / "big").unlink()
    (data / "big").symlink_to("/proc/self/mem")  # nobody may read its beginning
    copy = data_copy(data, "")
    assert copy.exists
    assert copy.trouble == f"{data / 'big'}: Input/output error"
