"""A file is there whole or not at all; a log loses at most its torn last line."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path

import pytest

from flodl.record.files import AtomicFile, LineFile, sweep_beside, whole_lines, write_atomically


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


def test_a_writer_whose_new_file_a_sweeper_holds_takes_another(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[Path, BufferedRandom] = {}
    flock = fcntl.flock

    def after_a_sweeper(handle: int, how: int) -> None:
        if not held:
            (beside,) = runs.glob(".*.tmp")
            held[beside] = beside.open("r+b")
            flock(held[beside], fcntl.LOCK_EX | fcntl.LOCK_NB)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", after_a_sweeper)
    with AtomicFile(runs / "weights") as file:
        for beside, sweeper in held.items():
            beside.unlink(missing_ok=True)
            sweeper.close()
        file.write(b"whole")
    assert held
    assert (runs / "weights").read_bytes() == b"whole"
    assert names(runs) == ["weights"]


@pytest.mark.parametrize("refused", [errno.EAGAIN, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_that_refuses_every_lock_gets_its_file(
    runs: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    def flock(_handle: int, _how: int) -> None:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(fcntl, "flock", flock)
    write_atomically(runs / "weights", b"whole")
    assert (runs / "weights").read_bytes() == b"whole"
    assert names(runs) == ["weights"]


def test_a_file_system_that_counts_no_links_gets_its_file(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fstat, asked = os.fstat, iter(range(100))

    def without_links(handle: int) -> os.stat_result:
        if next(asked, None) is None:
            pytest.fail("it is asked without end")
        found = list(fstat(handle))
        found[3] = 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", without_links)
    write_atomically(runs / "weights", b"whole")
    assert names(runs) == ["weights"]


def test_what_is_left_is_swept_where_only_a_writable_file_can_be_locked(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def as_on_nfs(handle: int, how: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(handle, how)

    (runs / ".weights.0123abcd.tmp").write_bytes(b"half")
    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    sweep_beside(runs / "weights")
    assert names(runs) == []


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
