"""task=probe over real hosts: a healthy lab is ready, and each planted fault is named with host, key and remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from tests.lab.host import PYTHON
from tests.lab.lab import Lab

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "probe.schema.json").read_text())
DIGITS = (ROOT / "flodl" / "datasets" / "data" / "digits.npz").read_bytes()
WITH_DATA = "dataset.file=@data/digits.npz"
PORT = 29500

Finding = Mapping[str, str]


def probed(desk: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document; nothing else may be on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "flodl", "task=probe", "json=true", "cluster=lab", *arguments],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "launch")])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    assert document["exit_code"] == done.returncode
    return done.returncode, document


def errors(document: Mapping[str, Any]) -> dict[tuple[str, str], Finding]:
    """(host, key) -> finding; each has a remedy."""
    found = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert [finding for finding in found if not finding["remedy"]] == []
    return {(finding["host"], finding["key"]): finding for finding in found}


def warnings(document: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    found = [finding for finding in document["findings"] if finding["severity"] == "warning"]
    return {(finding["host"], finding["key"]): finding["message"] for finding in found}


def give_data(lab: Lab, names: Sequence[str] = ("node-a", "node-b", "node-c")) -> None:
    for name in names:
        lab[name].path("/srv/data/digits.npz").write_bytes(DIGITS)


def rewrite(lab: Lab, desk: Path, **by_host: Mapping[str, Any]) -> None:
    """The cluster file with these fields of workers, `node_b={...}`, and `controller`."""
    cluster = lab.cluster()
    cluster["controller"] |= by_host.pop("controller", {})
    for worker in cluster["workers"]:
        worker.update(by_host.get(worker["host"].replace("-", "_"), {}))
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)


def test_a_healthy_lab_is_ready_and_its_ways_are_measured(lab: Lab, desk: Path) -> None:
    give_data(lab)
    code, document = probed(desk, WITH_DATA)
    assert (code, errors(document)) == (0, {})
    assert [host["hostname"] for host in document["hosts"]] == ["node-a", "node-b", "node-c"]
    assert {host["executable"] for host in document["hosts"]} == {PYTHON}
    names = ("node-a", "node-b", "node-c")
    assert [(pair["source"], pair["target"]) for pair in document["pairs"]] == [
        (one, other) for one in names for other in names if one != other
    ]
    assert document["allreduce"]["backend"] == "gloo"
    assert 0 < document["allreduce"]["ms"] < 1000


def test_faults_of_every_kind_are_named_together(lab: Lab, desk: Path) -> None:
    bridge = {"LD_PRELOAD": "/srv/none/libnccl.so.2"}
    rewrite(
        lab,
        desk,
        controller={"port": PORT},
        node_a={"nccl_socket_ifname": "eth9"},
        node_b={"env": bridge},
        node_c={"path": "/srv/none"},
    )
    give_data(lab)
    lab["node-b"].path("/srv/data/digits.npz").write_bytes(DIGITS[:-1] + b"x")
    site = f"{PYTHON.removesuffix('/bin/python')}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    lab["node-b"].write(f"{site}/site-packages/flodl-0.0.1.dist-info/METADATA", "Name: flodl\nVersion: 0.0.1\n")
    lab["node-c"].path("/srv/data/digits.npz").unlink()
    lab.close_port("node-c", PORT + 1)
    lab.wrong_clock("node-c", -90.0)
    lab.fill_disk("node-b", 4096)
    lab.noisy_shell("node-a", "Willkommen \x1b[31m[bold]!")
    code, document = probed(desk, WITH_DATA)
    found = errors(document)
    assert code == 1
    assert set(found) == {
        ("node-a", "cluster.workers[0].nccl_socket_ifname"),
        ("node-b", "cluster.workers[1].data_path"),
        ("node-b", "cluster.workers[1].env.LD_PRELOAD"),
        ("node-b", "cluster.workers[1].python"),
        ("node-c", "cluster.workers[2].path"),
        ("node-c", "cluster.workers[2].data_path"),
        ("node-c", "cluster.controller.port"),
    }
    assert "lab0 (" in found["node-a", "cluster.workers[0].nccl_socket_ifname"]["remedy"]
    assert "flodl 0.0.1" in found["node-b", "cluster.workers[1].python"]["message"]
    assert f"port {PORT + 1}" in found["node-c", "cluster.controller.port"]["message"]
    told = warnings(document)
    assert "90.0 s behind" in told["node-c", "clock"]
    assert "are free at /srv/project" in told["node-b", "disk"]
    assert "Willkommen [bold]!" in told["node-a", "login"]
    assert document["pairs"] == []


def test_a_firewall_between_hosts_is_named_with_the_port_range(lab: Lab, desk: Path) -> None:
    lab.block_ports("node-b", "1024:65535")
    begun = time.monotonic()
    code, document = probed(desk)
    assert time.monotonic() - begun < 20
    [((host, key), found)] = errors(document).items()
    assert (code, host, key) == (1, "node-b", "firewall")
    assert "cannot be reached from node-a, node-c over lab0" in found["message"]
    assert "TCP ports 32768 to 60999" in found["remedy"]


def test_hosts_that_cannot_be_met_are_told_apart_within_the_limit_and_the_others_are_looked_at(
    desk: Path, tmp_path: Path
) -> None:
    (tmp_path / "nobody").write_text("")
    with Lab(4) as lab:
        ssh = {**lab.worker("node-b")["ssh"], "known_hosts": str(tmp_path / "nobody")}
        rewrite(lab, desk, node_a={"python": "/srv/none/bin/python"}, node_b={"ssh": ssh})
        lab.link_down("node-c")
        begun = time.monotonic()
        code, document = probed(desk)
        assert time.monotonic() - begun < 20
    found = errors(document)
    assert code == 1
    assert set(found) == {("node-a", "python"), ("node-b", "ssh.known_hosts"), ("node-c", "host")}
    assert "/srv/none/bin/python" in found["node-a", "python"]["message"]
    assert "accept_new" in found["node-b", "ssh.known_hosts"]["remedy"]
    assert [host["reachable"] for host in document["hosts"]] == [False, False, False, True]
