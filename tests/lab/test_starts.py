"""FAULTS rows 10 and 21: a host that is not ready ends the start at once and is named with what it lacks."""

from __future__ import annotations

import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flodl.datasets import digits
from tests.lab.lab import Lab
from tests.lab.running import NOT_READY_SECONDS, SHORT, flodl, write_own
from tests.lab.test_logins import NOT_READY, hosts_named, row_about

Cluster = dict[str, Any]


def forbidden(lab: Lab, desk: Path, cluster: Cluster, *overrides: str) -> str:
    """What is said where the start fails, which takes at most 10 s and leaves no process."""
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    begun = time.monotonic()
    with flodl(desk, *SHORT, *overrides) as run:
        assert run.end(40) == NOT_READY, run.output
        assert time.monotonic() - begun < NOT_READY_SECONDS
        assert run.result["status"] == "failed"
        assert run.result["rounds"] == 0
        assert "Traceback" not in run.output.split("last lines")[0]
        return run.output


def test_what_every_host_lacks_is_told_in_one_table(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    a, b, c = cluster["workers"]
    a["path"] = "/srv/nowhere"
    b["python"] = "/srv/nowhere/bin/python"
    c["env"] = {"LD_PRELOAD": "/srv/nowhere/libnccl.so.2"}
    output = forbidden(lab, desk, cluster)
    assert "/srv/nowhere does not exist there" in row_about("node-a", output)
    assert "/srv/nowhere/bin/python" in row_about("node-b", output)
    assert "/srv/nowhere/libnccl.so.2 does not exist there" in row_about("node-c", output)


def test_an_interpreter_that_is_broken_and_one_without_flodl_are_named(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    broken, empty = "/srv/broken/python", "/srv/empty/bin/python"
    lab["node-a"].write(broken, "#!/bin/sh\necho 'Fatal Python error: no encodings' >&2\nexit 70\n", mode=0o755)
    lab["node-c"].make_environment("/srv/empty")
    next(lab["node-c"].path("/srv/empty").rglob("lab.pth")).unlink()
    cluster["workers"][0]["python"] = broken
    cluster["workers"][2]["python"] = empty
    output = forbidden(lab, desk, cluster)
    assert "ended with 70 before it began" in row_about("node-a", output)
    assert broken in row_about("node-a", output)
    assert "flodl" in row_about("node-c", output)
    assert empty in row_about("node-c", output)
    assert hosts_named(output) == ["node-a", "node-c"]


def test_another_version_of_flodl_on_one_host_is_named_with_both_versions(lab: Lab, desk: Path) -> None:
    meta = next(lab["node-b"].path("/srv/env").rglob("lab.pth")).parent / "flodl-0.0.9.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: flodl\nVersion: 0.0.9\n")
    output = forbidden(lab, desk, lab.cluster())
    assert "flodl 0.0.9" in row_about("node-b", output)
    assert f"flodl {version('flodl')}" in row_about("node-b", output)


def test_a_module_that_is_missing_on_one_host_is_named_with_the_host(lab: Lab, desk: Path) -> None:
    write_own(lab, desk, "mine.py", "from flodl.models.mlp import MLP as Net\n")
    lab["node-b"].path("/srv/project/mine.py").unlink()
    with flodl(desk, *SHORT, "model._target_=mine.Net") as run:
        assert run.end(60) in (2, 3), run.output
        assert "mine.Net" in run.output
        assert "node-b" in run.result["reason"]
        assert run.result["rounds"] == 0


def test_an_interface_that_is_not_there_is_named_with_those_that_are(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["workers"][1]["nccl_socket_ifname"] = "enp99s0"
    line = row_about("node-b", forbidden(lab, desk, cluster))
    assert "enp99s0" in line
    assert "lab0" in line


def test_a_host_behind_a_firewall_and_a_closed_controller_port_are_named(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["controller"]["port"] = 29400
    lab.block_ports("node-a", verdict="REJECT")
    lab.close_port("node-c", 29400, verdict="REJECT")
    output = forbidden(lab, desk, cluster)
    assert "29400" in row_about("node-c", output)
    assert "firewall" in output
    assert "node-a" in output


def test_data_that_lack_or_differ_on_a_host_are_named_with_their_place(lab: Lab, desk: Path) -> None:
    bundled = Path(digits.__file__).parent / "data" / "digits.npz"
    for host in lab.hosts:
        shutil.copy(bundled, host.path("/srv/data/digits.npz"))
    lab["node-b"].path("/srv/data/digits.npz").unlink()
    with lab["node-c"].path("/srv/data/digits.npz").open("r+b") as file:
        file.seek(5000)
        file.write(b"another byte")
    output = forbidden(lab, desk, lab.cluster(), "dataset.file=@data/digits.npz")
    assert "there is no /srv/data/digits.npz" in row_about("node-b", output)
    assert "is not what node-a has" in row_about("node-c", output)
    assert "deploy.data=rsync" in row_about("node-c", output)
