"""The lab as fixtures. One set of hosts serves the whole session (it costs half a second); each test gets it healed and
clean, and must leave no process on any host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.shell import reason_for_no_lab

GRACE_SECONDS = 5.0  # what CLUSTER promises: after the controller has gone, nothing of a run is left so much later


@pytest.fixture(scope="session")
def lab_of_the_session() -> Iterator[Lab]:
    if reason := reason_for_no_lab():
        pytest.skip(reason)
    with Lab(3) as lab:
        yield lab


@pytest.fixture
def lab(lab_of_the_session: Lab) -> Iterator[Lab]:
    """Three hosts without faults. Afterwards: no process left on any of them, faults undone, disks as new."""
    yield lab_of_the_session
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := lab_of_the_session.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    lab_of_the_session.reset()
    assert not left, f"left behind on hosts: {left}"


@pytest.fixture
def desk(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of the controller that holds conf/cluster/lab.yaml; the test runs in it."""
    lab.write_cluster(tmp_path / "conf/cluster/lab.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path
