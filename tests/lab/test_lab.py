"""The lab itself: hosts are hosts, and share nothing but software."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.lab.host import PRIVATE, PYTHON
from tests.lab.lab import Lab
from tests.lab.talk import dial, listening, reaches, ssh


def test_every_host_answers_over_ssh_by_its_own_name_and_address(lab: Lab) -> None:
    for host in lab.hosts:
        done = ssh(lab, host.name, "hostname; getent hosts $(hostname)")
        assert (done.returncode, done.stdout.split()) == (0, [host.name, host.address, host.name]), done.stderr


def test_every_host_has_a_key_of_its_own_and_its_sshd_notes_who_came(lab: Lab) -> None:
    keys = {host.known_hosts_line().split()[-1] for host in lab.hosts}
    assert len(keys) == len(lab.hosts)
    ssh(lab, "node-b", "true")
    assert f"Accepted publickey for root from {lab.controller}" in lab["node-b"].sshd_log()


def test_hosts_reach_each_other_and_this_machine_over_their_addresses_only(lab: Lab) -> None:
    a, b = lab["node-a"], lab["node-b"]
    with listening(b, 7000):
        assert reaches(a, "127.0.0.1", 7000) == "ConnectionRefusedError"
        assert reaches(a, b.address, 7000) == "reached"
    with listening(b, 7000), dial(b, 7000) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
        assert connection.getsockname()[0] == lab.controller


@pytest.mark.parametrize("folder", [f for f in PRIVATE if f != "/run"])
def test_what_a_host_writes_no_other_host_and_not_this_machine_sees(lab: Lab, folder: str) -> None:
    a, b = lab["node-a"], lab["node-b"]
    a.exec(["touch", f"{folder}/flodl-lab-canary"])
    assert a.path(f"{folder}/flodl-lab-canary").exists()
    assert not b.path(f"{folder}/flodl-lab-canary").exists()
    assert not Path(f"{folder}/flodl-lab-canary").exists()


def test_a_new_test_finds_the_disks_as_they_were(lab: Lab) -> None:
    host = lab["node-c"]
    host.write("/srv/project/deep/er/file", "x")
    host.path(PYTHON).unlink()
    host.write("/root/.bashrc", "exit 3\n")
    lab.reset()
    assert [p.name for p in sorted(host.path("/srv").iterdir())] == ["data", "env", "project"]
    assert list(host.path("/srv/project").iterdir()) == []
    assert ssh(lab, "node-c", f"{PYTHON} -c 'print(5)'").stdout == "5\n"


def test_processes_of_a_host_are_seen_here_but_not_on_another_host(lab: Lab) -> None:
    a, b = lab["node-a"], lab["node-b"]
    with a.popen(["sleep", "60.125"]) as sleeper:
        try:
            seen = [host.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout for host in (a, b)]
            assert ["60.125" in text for text in seen] == [True, False]
            assert "sleep 60.125" in lab.processes()["node-a"].values()
        finally:
            lab.reset()
        assert sleeper.wait(5) != 0
    assert lab.processes() == {}


def test_a_hosts_interpreter_holds_the_software_of_this_one_and_nothing_of_its_environment(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_SECRET_OF_THE_CALLER", "x")
    code = "import os, sys, torch, flodl, flodl_launch; print(torch.__version__, sys.prefix, sorted(os.environ))"
    told = ssh(lab, "node-a", f'{PYTHON} -P -c "{code}"').stdout
    assert told.startswith(f"{torch.__version__} /srv/env ")
    assert "FLODL_SECRET_OF_THE_CALLER" not in told
    assert "FLODL_TEST_SESSION" not in told


def test_flodl_takes_the_labs_cluster_file_as_it_is(desk: Path, lab: Lab) -> None:
    words = ["-m", "flodl", "cluster=lab", "elche=cpu_cadence", "launch.dry_run=true"]
    done = subprocess.run([sys.executable, *words], cwd=desk, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(host.name in done.stdout for host in lab.hosts)
