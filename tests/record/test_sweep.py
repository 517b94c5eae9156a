"""A sweep's folder, and whether a job was done before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flodl.decide.messages import End
from flodl.record.folder import RunFolder
from flodl.record.result import result
from flodl.record.sweep import SweepFolder, finished_run, spec_digest
from tests.record.figures import run, totals


def a_run(path: Path, digest: str = "abc", status: str | None = "done", at: int = 1) -> RunFolder:
    folder = RunFolder.adopt(path)
    folder.write_spec(b"{}", digest)
    os.utime(folder.spec_path, (at, at))
    if status is not None:
        end = End(status=status, exit_code=0, totals=totals(), reason="")  # pyright: ignore[reportArgumentType]
        folder.write_result(result(end, run()))
    return folder


def is_abc(spec: Path) -> bool:
    return spec_digest(spec) == "abc"


def test_the_next_try_of_an_arm_never_goes_where_a_run_lies(runs: Path) -> None:
    sweep = SweepFolder(runs)
    assert sweep.free_name("1") == "1"
    a_run(runs / "1", status="failed")
    assert sweep.free_name("1") == "1.2"
    a_run(runs / "1.2", status="failed")
    assert sweep.free_name("1") == "1.3"
    assert sweep.free_name("2") == "2"


ENDINGS = {"done": True, "degraded": True, "stopped": True, "failed": False, "interrupted": False, None: False}


@pytest.mark.parametrize(("status", "is_finished"), ENDINGS.items())
def test_only_a_run_that_ended_well_counts(runs: Path, status: str | None, is_finished: bool) -> None:
    a_run(runs / "deep" / "down" / "0", status=status)
    found = finished_run([runs], is_abc)
    assert (found is not None) == is_finished


def test_the_newest_of_several_is_found_whatever_lies_around(runs: Path) -> None:
    a_run(runs / "a", at=10)
    newest = a_run(runs / "b", at=30)
    a_run(runs / "c", at=20)
    a_run(runs / "d", at=40, status="failed")
    a_run(runs / "e", at=50, digest="another")
    damaged = a_run(runs / "f", at=60)
    damaged.result_path.write_bytes(b"{")
    (runs / "g").mkdir()
    (runs / "g" / "spec.json").write_text("no JSON")
    found = finished_run([runs, runs / "b", runs / "nowhere"], is_abc)
    assert found is not None
    assert found.path == newest.path


def test_a_comparison_lies_beside_the_arms_in_both_forms(runs: Path) -> None:
    sweep = SweepFolder(runs / "sweep")
    sweep.write_comparison(b'{"arms": []}', "# größte\n")
    assert json.loads((runs / "sweep" / "comparison.json").read_text()) == {"arms": []}
    assert (runs / "sweep" / "comparison.md").read_text() == "# größte\n"


def test_a_damaged_result_is_none(runs: Path) -> None:
    folder = a_run(runs / "0")
    found = SweepFolder(runs).result_of("0")
    assert found is not None
    assert found.status == "done"
    folder.result_path.write_bytes(b"{}")
    assert SweepFolder(runs).result_of("0") is None
    assert SweepFolder(runs).result_of("1") is None


WRITER = """
import sys
from pathlib import Path
from flodl.record.files import AtomicFile
files = [AtomicFile(Path(sys.argv[1]) / name) for name in ("comparison.json", "comparison.md", "comparison.html")]
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_sweep_left_of_a_comparison_is_swept_and_what_a_living_one_writes_is_not(runs: Path) -> None:
    (runs / ".comparison.json.notes.tmp").write_text("somebody's own")
    command = [sys.executable, "-c", WRITER, str(runs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        SweepFolder(runs).write_comparison(b"{}", "second")
        assert len([*runs.glob(".comparison.*.tmp")]) == 1 + 3
        writer.kill()
    SweepFolder(runs).write_comparison(b"{}", "third")
    assert sorted(path.name for path in runs.iterdir()) == [
        ".comparison.json.notes.tmp", "comparison.json", "comparison.md",
    ]  # fmt: skip
    assert (runs / "comparison.md").read_text() == "third"
