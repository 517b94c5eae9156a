"""Code onto hosts that are not all as they should be: a login shell that talks, a disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.running import SHORT, flodl
from tests.lab.test_logins import NOT_READY, hosts_named, row_about

MUCH = 4_000_000


@pytest.fixture
def rig(lab: Lab, desk: Path) -> dict[str, object]:
    """A project with one large file, to be pushed; node-a's login shell talks, node-b's disk is full."""
    (desk / "weights.dat").write_bytes(os.urandom(MUCH))
    cluster = lab.cluster() | {"deploy": {"code": "rsync"}}
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    lab.noisy_shell("node-a", "Welcome to the machine\n" * 50)
    lab.fill_disk("node-b", 64 << 10)
    return cluster


def test_a_host_that_cannot_be_pushed_to_is_named_with_its_remedy(lab: Lab, desk: Path, rig: object) -> None:
    with flodl(desk, *SHORT) as run:
        assert run.end(120) == NOT_READY, run.output
    assert hosts_named(run.output) == ["node-b"]
    row = row_about("node-b", run.output)
    assert "code was not pushed" in row
    assert "make room at /srv/project on that host" in row


def test_a_run_that_may_begin_with_fewer_ranks_begins_without_it(
    lab: Lab, desk: Path, rig: dict[str, dict[str, object]]
) -> None:
    rig["controller"]["join"] = {"min_ranks": 2}
    lab.write_cluster(desk / "conf/cluster/lab.yaml", rig)
    with flodl(desk, *SHORT) as run:
        assert run.end(120) == 0, run.output
    assert "starting without node-b: controller.join.min_ranks allows it" in run.output
    assert lab["node-a"].path("/srv/project/weights.dat").stat().st_size == MUCH
    pushes = [line for line in run.output.splitlines() if ": code: " in line]
    assert sorted(line.split(":")[0] for line in pushes) == ["node-a", "node-c"], "one line per host"
