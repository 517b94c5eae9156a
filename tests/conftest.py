"""Rings by folder, temporary run folders, and the promise that no process of a test outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anybody imports torch: tests fork ranks, and a fork after a multi-threaded op hangs at the child's next one.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

TESTS = Path(__file__).parent
RINGS = {
    "spec": "ring0",
    "decide": "ring0",
    "drive": "ring1",
    "scenarios": "ring1",
    "sim": "ring1",
    "conf": "ring2",
    "door": "ring2",
    "contracts": "ring2",
    "loggers": "ring2",
    "record": "ring2",
    "report": "ring2",
    "tasks": "ring4",
    "architecture": "ring3",
    "datasets": "ring4",
    "e2e": "ring4",
    "engine": "ring4",
    "launch": "ring4",
    "launcher": "ring4",
    "models": "ring4",
    "probe": "ring4",
    "steps": "ring4",
    "bench": "ring5",
    "browser": "ring5",
    "chaos": "ring5",
    "gpu": "ring5",
    "lab": "ring5",
}
SLOW = {"ring4", "ring5"}
# Folders and files that one worker runs, one after another: those that share one device, and those that claim moments,
# so that at most the other workers' tests, never two of their own kind, share the cores with them.
TOGETHER = {"gpu": "gpu", "chaos": "timed", "lab": "timed", "test_random.py": "random schedules"}
GRACE_SECONDS = 5.0
MARK = "FLODL_TEST_SESSION"


def pytest_configure(config: pytest.Config) -> None:
    """Mark the environment: whatever a test starts, however deep, carries it. A bare `pytest` runs rings 0 to 3."""
    os.environ[MARK] = uuid.uuid4().hex
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = "not (ring4 or ring5)"  # an option, so that xdist hands it to its workers


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile` what is TOGETHER stays with one worker, as a file does: what it shares is made once."""
    if config.getvalue("dist") != "loadfile":
        return None
    if gone := [name for name in TOGETHER if not any(TESTS.rglob(name))]:
        raise pytest.UsageError(f"{', '.join(gone)}: not there any more; mend TOGETHER of {__file__}")
    from xdist.scheduler import LoadFileScheduling

    class Scopes(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return TOGETHER.get(Path(file).name) or TOGETHER.get(Path(file).parent.name, file)

    return Scopes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test its folder's ring."""
    for item in items:
        ring = RINGS.get(item.path.relative_to(TESTS).parts[0])
        if ring is None:
            raise pytest.UsageError(f"{item.path}: its folder has no ring; name it in RINGS of {__file__}")
        item.add_marker(ring)


def _marked_processes() -> dict[int, str]:
    """pid -> command line of every living process that this test session started, itself excepted."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked, or is not ours to read
            continue
        # A tracker of shared memory belongs to the test process itself and ends with it.
        if mark in environment.split(b"\0") and "resource_tracker" not in command:
            found[int(entry.name)] = command.strip()
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a module that starts processes, none of them lives on (5 s of grace). Zombies have no environment."""
    yield
    if RINGS[request.path.relative_to(TESTS).parts[0]] not in SLOW:
        return
    deadline = time.monotonic() + GRACE_SECONDS
    while left := _marked_processes():
        if time.monotonic() > deadline:
            for pid in left:  # all of them are ours: they carry this session's mark. The next module is not to blame
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pytest.fail("left behind: " + "; ".join(f"{pid} {command}" for pid, command in sorted(left.items())))
        time.sleep(0.05)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """An empty place for run folders, with a name that hurts: blanks, a quote, unicode."""
    place = tmp_path / "runs of Bob's größte"
    place.mkdir()
    return place
