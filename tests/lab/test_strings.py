"""FAULTS row 20: names that would like to be commands are refused, and none runs. (Those that may be such names arrive
byte for byte: test_own_project.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.running import SHORT, flodl
from tests.lab.test_logins import hosts_named


def canaries(lab: Lab, desk: Path) -> list[Path]:
    """Every file that an executed string has left, here or on a host."""
    found = [*desk.rglob("canary"), *(path for host in lab.hosts for path in host.path("/srv").rglob("canary"))]
    tops = [host.path(place) / "canary" for host in lab.hosts for place in ("/root", "/tmp", "/")]
    return [*found, *(path for path in tops if path.exists())]


REFUSED = [  # key of a host -> a value that can be no such thing, wherever it leads
    ("host", "-oProxyCommand=touch /srv/canary"),
    ("ssh.target", "-oProxyCommand=touch canary"),
    ("ssh.target", "$(touch canary)"),
    ("ssh.user", "-l root; touch /srv/canary"),
    ("ssh.user", "root$(touch /srv/canary)"),
    ("ssh.proxy_jump", "-oProxyCommand=touch canary"),
    ("path", "-rf"),
    ("path", "/srv/a\nb; touch /srv/canary"),
    ("nccl_socket_ifname", "lab0; touch /srv/canary"),
    ("docker", "-x; touch canary"),
]
NO_PYTHONS = {"node-a": "/srv/env/bin/python; touch /srv/canary; ", "node-b": "/srv/$(touch /srv/canary)/python"}


@pytest.mark.row(20)
def test_what_cannot_be_such_a_name_is_refused_with_its_place_and_runs_nothing(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["workers"] = [{**lab.worker("node-b"), "host": f"node-{number}"} for number in range(len(REFUSED))]
    for worker, (key, value) in zip(cluster["workers"], REFUSED, strict=True):
        place = worker["ssh"] if key.startswith("ssh.") else worker
        place[key.removeprefix("ssh.")] = value
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    with flodl(desk, *SHORT) as run:
        assert run.end(120) == 2, run.output
        assert "Traceback" not in run.output
        for number, (key, _) in enumerate(REFUSED):
            assert f"cluster.workers[{number}].{key}=" in run.output
    assert canaries(lab, desk) == []


@pytest.mark.row(20)
def test_interpreters_of_such_names_are_looked_for_and_not_executed(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    for worker in cluster["workers"]:
        worker["python"] = NO_PYTHONS.get(worker["host"], worker["python"])
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    with flodl(desk, *SHORT) as run:
        assert run.end(120) == 3, run.output
        assert "Traceback" not in run.output
        assert hosts_named(run.output) == list(NO_PYTHONS)
    assert canaries(lab, desk) == []
