"""The status file is whole at any moment and at most two seconds old."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from flodl.errors import FlodlError
from flodl.record.process import lives
from flodl.record.status import StatusFile, read_status
from tests.record.figures import epoch


def test_it_is_due_at_once_and_then_every_two_seconds(runs: Path) -> None:
    now = [100.0]
    status = StatusFile(runs / "status", "r", clock=lambda: now[0])
    assert status.due()
    status.write(epoch(0))
    assert not status.due()
    now[0] += 1.9
    assert not status.due()
    now[0] += 0.1
    assert status.due()


def test_it_says_whose_it_is_and_how_the_run_ended(runs: Path) -> None:
    status = StatusFile(runs / "status", "r")
    status.write(epoch(3), state="done")
    found = msgspec.json.decode((runs / "status").read_bytes())
    assert (found["schema"], found["run_id"], found["pid"], found["state"]) == (1, "r", os.getpid(), "done")
    assert found["view"]["epoch"] == 3
    assert found["updated"].endswith("Z")


def test_while_hosts_are_met_it_keeps_itself_fresh(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flodl.record.status.INTERVAL_SECONDS", 0.05)
    status = StatusFile(runs / "status", "r")
    status.begin()
    first = read_status(runs / "status").updated
    with status.refreshed():
        end = time.monotonic() + 10
        while read_status(runs / "status").updated <= first:
            assert time.monotonic() < end
            time.sleep(0.01)
    last = (runs / "status").read_bytes()
    time.sleep(0.2)
    assert (runs / "status").read_bytes() == last, "afterwards it is the run's own again"
    assert read_status(runs / "status").state == "starting"


def test_keeping_it_asks_for_the_view_only_when_it_is_due(runs: Path) -> None:
    now, asked = [100.0], list[float]()
    status = StatusFile(runs / "status", "r", clock=lambda: now[0])
    for _ in range(5):
        status.keep(lambda: asked.append(now[0]))
        now[0] += 0.8
    assert asked == [100.0, pytest.approx(102.4)]


def test_a_run_says_that_it_begins_before_it_has_anything_to_tell(runs: Path) -> None:
    status = StatusFile(runs / "status", "r")
    status.begin()
    found = read_status(runs / "status")
    assert (found.state, found.view, found.run_id) == ("starting", None, "r")
    assert found.controller is not None
    assert lives(found.controller)
    assert status.due()


def test_what_is_no_status_file_is_refused_in_words(runs: Path) -> None:
    path = runs / "status"
    path.write_text("{")
    with pytest.raises(FlodlError, match="status"):
        read_status(path)
    StatusFile(path, "r").write(None)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(FlodlError, match="status schema 7; this flodl reads 1"):
        read_status(path)
