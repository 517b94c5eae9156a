"""The writer of bundles is killed at every system call, and refused by the file system at every one that it can be.

A real kernel does both: strace attaches to a child that is about to save. At every instant a whole bundle can be
loaded, and the next save leaves nothing of the interrupted one behind.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flodl.record.bundle import BundleStore
from tests.record.bundles import STEM, content, save, store, weights_in, weights_of

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
CALL = re.compile(r"^(\d+ +)?(\w+)\(")
TO_DISK = {"openat", "write", "fsync", "rename", "link", "unlink", "mkdir"}
MOST_KILLS = 100
IDLE = {"read", "restart_syscall", "exit_group"}  # waiting to be told to go, and the end after all is done
PATIENCE_SECONDS = 30.0
HARMLESS = {
    "newfstatat",
    "getdents64",
    "lseek",
    "close",
    "ioctl",
    "getrandom",
}  # the disk stays as the call before left it

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


@dataclass(frozen=True)
class End:
    """How a traced save ended: exit code (minus the signal), what it said, what the tracer saw; threads: each call with
    its thread, for strace counts each thread by itself."""

    code: int
    said: str
    calls: list[str]
    threads: list[tuple[str, str]]


class Writers:
    """Saves in children of one warm process, each under a tracer of its own."""

    def __init__(self, place: Path) -> None:
        self._said = (place / "said").open("w+")
        self._trace = place / "trace"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.record.bundles"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONUTF8": "1"},  # whatever this machine's locale: the folder's name is no ASCII
            bufsize=1,
        )

    def save(self, round_: int, folder: Path, *tracing: str, how: str = "store") -> End:
        self._said.seek(0)
        self._said.truncate()
        child = self._ask(f"{round_}\t{folder}\t{how}")
        tracer = self._attach(child, tracing)
        with tracer:  # it ends with the child
            code = self._ask("go")
        found = [call for line in self._trace.read_text().splitlines() if (call := CALL.match(line))]
        threads = [(call[1] or "", call[2]) for call in found]
        return End(code, Path(self._said.name).read_text(), [name for _, name in threads], threads)

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return int(self._process.stdout.readline())

    def _attach(self, child: int, tracing: tuple[str, ...]) -> subprocess.Popen[str]:
        command = [str(STRACE), "-f", "-o", str(self._trace), "-p", str(child), *tracing]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            with tracer:
                self.close()
            pytest.skip(f"strace cannot attach here: {line.strip()}")
        return tracer

    def close(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)
            self._said.close()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    found = Writers(tmp_path_factory.mktemp("writers"))
    yield found
    found.close()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is to be had: hundreds of saves would wait for a disk that others use too."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as place:
        folder = Path(place) / "runs of Bob's größte"
        folder.mkdir()
        yield folder


@pytest.fixture
def before(runs: Path) -> Path:
    """Two bundles and what an interrupted save left: the next one (keep=2) prunes, sweeps and moves the links."""
    folder = runs / "before"
    for n in (1, 2):
        save(store(folder), n)
    (folder / f"{STEM}.r3.fdl").write_bytes(b"its save was killed before the meta")
    (folder / f".{STEM}.r3.outer.fdl.0123abcd.tmp").write_bytes(b"half")
    return folder


def newest(folder: Path) -> tuple[int, bytes]:
    """Round and content of the newest bundle, found whole. Raises where there is none."""
    bundle = store(folder).load().bundle
    model, outer = bundle.path("model"), bundle.path("outer")
    assert model is not None
    assert outer is not None
    return bundle.round, model.read_bytes() + outer.read_bytes()


def whole(round_: int, mark: str = "") -> tuple[int, bytes]:
    return round_, content(round_, "model", mark) + content(round_, "outer", mark)


def files(folder: Path) -> set[str]:
    return {p.name.removeprefix(STEM) for p in folder.iterdir()}


def bundle_files(of: BundleStore) -> set[str]:
    """The files of the bundles that are there, two links and the weights: nothing else belongs into the folder."""
    named = {name for b in of.bundles() for name in (b.meta_path.name, *(m.name for m in b.meta.members))}
    return {name.removeprefix(STEM) for name in named} | {".fdl", ".meta.json", "weights.safetensors"}


@pytest.mark.row(23)
@pytest.mark.parametrize(
    ("round_", "left_out"), [(3, IDLE), (2, IDLE | HARMLESS)], ids=["a new round", "a round that is there already"]
)
def test_killed_at_any_system_call_a_whole_bundle_is_there_and_the_next_save_sweeps(
    round_: int, left_out: set[str], before: Path, runs: Path, writers: Writers
) -> None:
    shutil.copytree(before, runs / "unharmed")
    unharmed = writers.save(round_, runs / "unharmed")
    assert unharmed.code == 0
    assert newest(runs / "unharmed") == whole(round_, " again")
    seen = Counter(unharmed.calls)
    points = [(call, n) for call, times in seen.items() if call not in left_out for n in range(1, times + 1)]
    assert {"openat", "write", "fsync", "rename", "link", "unlink"} <= set(seen)
    ends: Counter[str] = Counter()
    for number, (call, n) in enumerate(points):
        folder = runs / str(number)
        shutil.copytree(before, folder)
        end = writers.save(round_, folder, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}")
        assert end.code == -9, f"{call} {n}"
        found = newest(folder)
        assert found in (whole(2), whole(round_, " again")), f"{call} {n}"
        ends["new" if found == whole(round_, " again") else "old"] += 1
        save(store(folder), 4)
        assert newest(folder) == whole(4)
        assert files(folder) == bundle_files(store(folder)), f"{call} {n}"
        shutil.rmtree(folder)
    assert min(ends["old"], ends["new"]) >= 5, ends  # both sides of the commit were hit


@pytest.mark.row(23)
def test_killed_anywhere_in_the_keeper_a_whole_bundle_and_whole_weights_are_there(
    before: Path, runs: Path, writers: Writers
) -> None:
    """The record's whole part in a save: the parts as they arrive, and the commit on its own thread. At the next start
    the weights are those of the newest bundle."""
    shutil.copytree(before, runs / "unharmed")
    unharmed = writers.save(3, runs / "unharmed", how="keeper")
    assert (unharmed.code, newest(runs / "unharmed")) == (0, whole(3, " again")), unharmed.said
    most: Counter[str] = Counter()  # of one thread
    for (_, call), times in Counter(unharmed.threads).items():
        most[call] = max(most[call], times)
    points = [(call, n) for call in sorted(TO_DISK & most.keys()) for n in range(1, most[call] + 1)]
    ends: Counter[str] = Counter()
    behind = 0
    for call, n in points[:: -(-len(points) // MOST_KILLS)]:
        folder = runs / f"{call} {n}"
        shutil.copytree(before, folder)
        tracing = ("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}")
        assert writers.save(3, folder, *tracing, how="keeper").code == -9, f"{call} {n}"
        found = newest(folder)
        assert found in (whole(2), whole(3, " again")), f"{call} {n}"
        is_new = found == whole(3, " again")
        assert weights_in(folder) in (weights_of(2), weights_of(3, " again"))
        assert is_new or weights_in(folder) == weights_of(2), "never newer than every bundle"
        behind += is_new and weights_in(folder) == weights_of(2)
        store(folder).mend()
        assert weights_in(folder) == (weights_of(3, " again") if is_new else weights_of(2)), f"{call} {n}"
        ends["new" if is_new else "old"] += 1
        save(store(folder), 4)
        assert files(folder) == bundle_files(store(folder)), f"{call} {n}"
        shutil.rmtree(folder)
    assert min(ends["old"], ends["new"], behind) >= 2, ends


# What a file system may answer, and to which calls of a save, up to its commit.
REFUSALS = [
    ("openat", errno.ENOSPC), ("openat", errno.EROFS), ("write", errno.ENOSPC), ("write", errno.EDQUOT),
    ("write", errno.EFBIG), ("fsync", errno.EIO), ("rename", errno.ENOSPC), ("rename", errno.EROFS),
]  # fmt: skip


@pytest.mark.row(22)
@pytest.mark.parametrize(("call", "number"), REFUSALS, ids=[f"{call} {errno.errorcode[n]}" for call, n in REFUSALS])
def test_refused_by_the_file_system_the_last_good_bundle_stays_and_path_and_reason_are_told(
    call: str, number: int, before: Path, runs: Path, writers: Writers
) -> None:
    name = errno.errorcode[number]
    refused = 0
    for n in range(1, 40):
        folder = runs / str(n)
        shutil.copytree(before, folder)
        end = writers.save(3, folder, "-e", f"trace={call}", "-e", f"inject={call}:error={name}:when={n}")
        if len([c for c in end.calls if c == call]) < n:
            break
        if end.code == 4:
            refused += 1
            assert f"({name}): the bundle of round 3 was not saved" in end.said
            assert str(folder) in end.said
        else:
            assert end.code == 0, end.said
        assert newest(folder) in (whole(2), whole(3, " again"))
        if end.code == 0:
            assert newest(folder) == whole(3, " again")
        save(store(folder), 4)
        assert files(folder) == bundle_files(store(folder))
        shutil.rmtree(folder)
    assert refused >= 2


@pytest.mark.row(22)
@pytest.mark.parametrize(("call", "name"), [("unlink", "EIO"), ("link", "ENOSPC"), ("link", "EPERM")])
def test_what_goes_wrong_after_the_commit_does_the_bundle_no_harm(
    call: str, name: str, before: Path, runs: Path, writers: Writers
) -> None:
    for path in (before / f"{STEM}.r3.fdl", before / f".{STEM}.r3.outer.fdl.0123abcd.tmp"):
        path.unlink()  # nothing to be swept at the beginning: what fails lies after the commit
    end = writers.save(3, before, "-e", f"trace={call}", "-e", f"inject={call}:error={name}:when=1+")
    assert end.code == 0, end.said
    assert newest(before) == whole(3, " again")
    words = {"unlink": "old files stay there", "link": "it still means an older bundle"}
    assert (words[call] in end.said) is (name != "EPERM")  # no hard links there at all: nothing to tell
    save(store(before), 4)
    assert files(before) == bundle_files(store(before))
