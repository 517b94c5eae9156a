"""A file is there whole or not at all; a log loses at most its torn last line."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from flodl.record.files import AtomicFile, LineFile, whole_lines, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_an_atomic_file_appears_at_its_commit_and_not_before(runs: Path) -> None:
    file = AtomicFile(runs / "weights")
    file.write(b"first ")
    file.write(memoryview(b"second"))
    assert not (runs / "weights").exists()
    file.commit()
    assert (runs / "weights").read_bytes() == b"first second"
    assert names(runs) == ["weights"]


def test_an_exception_while_writing_leaves_the_old_file_and_nothing_else(runs: Path) -> None:
    write_atomically(runs / "weights", b"old")
    with pytest.raises(TypeError), AtomicFile(runs / "weights") as file:
        file.write("half of the new")  # pyright: ignore[reportArgumentType]
    assert (runs / "weights").read_bytes() == b"old"
    assert names(runs) == ["weights"]


def test_abandoning_after_a_commit_is_harmless(runs: Path) -> None:
    file = AtomicFile(runs / "weights")
    file.commit()
    file.abandon()
    assert names(runs) == ["weights"]


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 4096 bytes, as on a disk that is full (the kernel's own limit, so writes come short)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_when_the_disk_is_full_the_old_file_stays_and_nothing_else(runs: Path) -> None:
    write_atomically(runs / "weights", b"old")
    with pytest.raises(OSError, match="large"):
        write_atomically(runs / "weights", b"n" * 5000)
    assert (runs / "weights").read_bytes() == b"old"
    assert names(runs) == ["weights"]


@pytest.mark.usefixtures("small_disk")
def test_a_line_that_does_not_fit_is_taken_back_whole(runs: Path) -> None:
    lines = LineFile(runs / "log")
    lines.append(b"one")
    with pytest.raises(OSError, match="large"):
        lines.append(b"n" * 5000)
    lines.append(b"two")
    assert (runs / "log").read_bytes() == b"one\ntwo\n"
    lines.close()


def test_lines_are_whole_and_in_order(runs: Path) -> None:
    lines = LineFile(runs / "log")
    lines.append(b"one")
    lines.append(b"two")
    assert list(whole_lines(runs / "log")) == [b"one", b"two"]
    lines.close()
    lines.close()


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_torn_last_line_is_left_out_wherever_it_was_torn(runs: Path, cut: int) -> None:
    (runs / "log").write_bytes(b"one\ntwo\n"[: 4 + cut])
    expected = [b"one", b"two"] if cut == 4 else [b"one"]
    assert list(whole_lines(runs / "log")) == expected


def test_going_on_after_a_torn_line_begins_a_new_one(runs: Path) -> None:
    (runs / "log").write_bytes(b"one\ntw")
    lines = LineFile(runs / "log")
    lines.append(b"three")
    lines.close()
    assert (runs / "log").read_bytes() == b"one\nthree\n"
