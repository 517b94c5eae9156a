"""A project of one's own on hosts that share no disk: pushed into folders that differ per host, trained, and refused by
name where one host's copy is another one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_projects import NAME, ODD, OWN, own_choices, project
from tests.lab.lab import Lab
from tests.lab.running import flodl

PLACES = {  # host -> project, data
    "node-a": ("/srv/project", "/srv/data"),
    "node-b": (
        "/srv/größe = $(touch /srv/canary) 'p\" ; touch /srv/canary",
        "/srv/sets `touch /srv/canary` | %s \\n $HOME",
    ),
    "node-c": ("/root/-rf ~ !! {a,b}* <(touch canary) && touch canary 😀", "/var/tmp/データ"),
}
NOT_READY = 3
PASSED = ODD + " passed on"


@pytest.fixture
def rig(lab: Lab, desk: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The project in the working folder, the data elsewhere on this machine, nothing on the hosts; the cluster."""
    monkeypatch.setenv("PASSED_ON", PASSED)
    data = tmp_path_factory.mktemp("sets of mine")
    project(desk, data)
    own_choices(desk)
    cluster = lab.cluster() | {"deploy": {"code": "rsync", "data": "rsync"}, "env_pass": ["PASSED_ON"]}
    cluster["controller"]["data_path"] = str(data)
    for worker in cluster["workers"]:
        worker["path"], worker["data_path"] = PLACES[worker["host"]]
        worker |= {"env": {"ODD": ODD}, "local_devices": "cpu:1"}
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    return cluster


@pytest.mark.row(20)
def test_it_is_pushed_into_folders_of_any_name_and_over_stale_files_which_are_refused_without_a_push(
    lab: Lab, desk: Path, rig: dict[str, Any]
) -> None:
    stale = f"{PLACES['node-c'][0]}/widths.py"
    lab["node-c"].write(stale, "WIDTH = 9\n")
    os.utime(lab["node-c"].path(stale), (time.time() + 60,) * 2)  # of a length with the right one, and newer
    with flodl(desk, "cluster=lab", *OWN, f"name={json.dumps(NAME, ensure_ascii=False)}") as run:
        assert run.end(120.0) == 0, run.output
        assert run.result["status"] == "done"
        assert run.result["hosts"] == list(PLACES)
        assert run.result["name"] == NAME
    for rank, (host, (folder, data)) in enumerate(PLACES.items()):
        log = (desk / "run" / "ranks" / f"{host}.{rank}.log").read_text()
        assert f"in {folder!r} with {ODD!r} and {PASSED!r}" in log
        assert lab[host].read(f"{folder}/widths.py") == "WIDTH = 8\n"
        assert lab[host].path(f"{data}/points/train.npz").is_file()
        assert (
            lab[host].exec(["find", "/srv", "/root", "/tmp", "/var/tmp", "-name", "canary", "-type", "f"]).stdout == ""
        )
    assert list(desk.rglob("canary")) == []
    lab["node-c"].write(stale, "WIDTH = 9\n")
    lab.write_cluster(desk / "conf/cluster/lab.yaml", rig | {"deploy": {"code": "none", "data": "none"}})
    with flodl(desk, "cluster=lab", *OWN[:-1], "hydra.run.dir=stale") as run:
        assert run.end(120) == NOT_READY, run.output
        said = " ".join(run.output.split())
    assert "node-c: widths.py of the project is not what node-a has; run with cluster.deploy.code=rsync" in said
