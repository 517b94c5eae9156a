"""FAULTS rows 10 and 21: a host that is not ready ends the start at once and is named with what it lacks."""

from __future__ import annotations

import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from flodl.datasets import digits
from tests.lab.lab import Lab
from tests.lab.running import NOT_READY_SECONDS, SHORT, awaited, flodl, write_own
from tests.lab.test_logins import NOT_READY, hosts_named, row_about

Cluster = dict[str, Any]
OWN = "model._target_=mine.Net"
MINE = "from flodl.models.mlp import MLP as Net\n"


def forbidden(lab: Lab, desk: Path, cluster: Cluster, *overrides: str) -> str:
    """What is said where the start fails, which takes at most 10 s once the job is composed, and leaves no process."""
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    with flodl(desk, *SHORT, *overrides) as run:
        run.until((desk / "run").exists)
        begun = time.monotonic()
        assert run.end(40) == NOT_READY, run.output
        assert time.monotonic() - begun < NOT_READY_SECONDS
        assert run.result["status"] == "failed"
        assert run.result["rounds"] == 0
        assert "Traceback" not in run.output.split("last lines")[0]
        return run.output


@pytest.mark.row(10, 21)
def test_interpreters_that_are_broken_missing_or_without_flodl_are_told_in_one_table(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    pythons = {"node-a": "/srv/broken/python", "node-b": "/srv/nowhere/bin/python", "node-c": "/srv/empty/bin/python"}
    for worker in cluster["workers"]:
        worker["python"] = pythons[worker["host"]]
    script = "#!/bin/sh\necho 'Fatal Python error: init_fs_encoding: no encodings' >&2\nexit 70\n"
    lab["node-a"].write(pythons["node-a"], script, mode=0o755)
    lab["node-c"].make_environment("/srv/empty")
    next(lab["node-c"].path("/srv/empty").rglob("lab.pth")).unlink()
    output = forbidden(lab, desk, cluster)
    assert hosts_named(output) == ["node-a", "node-b", "node-c"]
    for host, python in pythons.items():
        assert python in row_about(host, output)
    assert "ended with 70 before it began | Fatal Python error: init_fs_encoding" in row_about("node-a", output)
    assert "flodl" in row_about("node-c", output)


@pytest.mark.row(10, 21)
def test_whatever_else_hosts_lack_is_told_in_one_table(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    a, _, c = cluster["workers"]
    a |= {"path": "/srv/nowhere", "nccl_socket_ifname": "enp99s0"}
    meta = next(lab["node-b"].path("/srv/env").rglob("lab.pth")).parent / "flodl-0.0.9.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: flodl\nVersion: 0.0.9\n")
    c["env"] = {"LD_PRELOAD": "/srv/nowhere/libnccl.so.2"}
    for host in lab.hosts:
        shutil.copy(Path(digits.__file__).parent / "data" / "digits.npz", host.path("/srv/data/digits.npz"))
    lab["node-b"].path("/srv/data/digits.npz").unlink()
    with lab["node-c"].path("/srv/data/digits.npz").open("r+b") as file:
        file.seek(5000)
        file.write(b"another byte")
    write_own(lab, desk, "mine.py", MINE)
    lab["node-b"].path("/srv/project/mine.py").unlink()
    output = forbidden(lab, desk, cluster, "dataset.file=@data/digits.npz", OWN)
    wanted = {
        "node-a": ["/srv/nowhere does not exist there", "enp99s0", "lab0"],
        "node-b": [
            "flodl 0.0.9",
            f"flodl {version('flodl')}",
            "there is no /srv/data/digits.npz",
            "the module mine is missing on node-b: it is not in /srv/project",
        ],
        "node-c": [
            "/srv/nowhere/libnccl.so.2 does not exist there",
            "is not what node-a has",
            "deploy.data=rsync",
        ],
    }
    for host, words in wanted.items():
        for word in words:
            assert word in row_about(host, output)
    assert hosts_named(output) == ["node-a"] * 2 + ["node-b"] * 3 + ["node-c"] * 2


@pytest.mark.row(10)
def test_without_the_probe_a_rank_says_that_its_host_lacks_the_module(lab: Lab, desk: Path) -> None:
    write_own(lab, desk, "mine.py", MINE)
    lab["node-b"].path("/srv/project/mine.py").unlink()
    said = "model._target_=mine.Net: the module mine is missing on node-b: it is not in /srv/project"
    with flodl(desk, *SHORT, OWN, "launch.probe=false") as run:
        awaited(lambda: any(said in log.read_text() for log in desk.glob("run/ranks/node-b.*.log")), 60)
        assert run.end(NOT_READY_SECONDS) == NOT_READY, run.output
        assert said in " ".join(run.output.split())
        assert said in run.result["reason"]
        assert run.result["rounds"] == 0
    awaited(lambda: not lab.processes(), 1.0)


def test_a_host_behind_a_firewall_and_a_closed_controller_port_are_named(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["controller"]["port"] = 29400
    lab.block_ports("node-a", verdict="REJECT")
    lab.close_port("node-c", 29400, verdict="REJECT")
    output = forbidden(lab, desk, cluster)
    assert "29400" in row_about("node-c", output)
    assert "cannot be reached from node-b" in row_about("node-a", output)
    assert "firewall" in output
    assert "32768 to 60999" in output
