"""FAULTS rows 18 and 19: what may stand between a login and a program, told apart and all at once."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import Lab
from tests.lab.running import SHORT, flodl, lone_ranks

NOT_READY = 3


def refused(lab: Lab, desk: Path, cluster: dict[str, Any] | None = None) -> tuple[str, float]:
    """What the command says where hosts are not ready, and after how many seconds."""
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    begun = time.monotonic()
    with flodl(desk, *SHORT) as run:
        assert run.end(40) == NOT_READY, run.output
        assert run.result["status"] == "failed"
        assert run.result["rounds"] == 0
        assert "Traceback" not in run.output
        return run.output, time.monotonic() - begun


def hosts_named(output: str) -> list[str]:
    """Hosts of the table's errors, in order."""
    return [line.split()[1] for line in output.splitlines() if line.startswith("error ")]


def row_about(name: str, output: str) -> str:
    """The table's errors about a host in one line: what is the case and what to do."""
    rows = re.split(r"^(?=error |warning )", output, flags=re.MULTILINE)
    found = [" ".join(row.split()) for row in rows if row.startswith("error ") and row.split()[1] == name]
    assert found, output
    return " | ".join(found)


@pytest.mark.row(18)
def test_unreachable_refused_and_not_let_in_are_told_apart_and_together(lab: Lab, desk: Path) -> None:
    lab.drop("node-a")
    lab.stop_sshd("node-b")
    lab.refuse_keys("node-c")
    output, seconds = refused(lab, desk)
    assert "cannot be reached" in row_about("node-a", output)
    assert f"nothing listens on {lab['node-b'].address}:22" in row_about("node-b", output)
    assert "not authorized there" in row_about("node-c", output)
    assert str(lab.identity) in row_about("node-c", output)
    assert hosts_named(output) == ["node-a", "node-b", "node-c"]
    assert seconds < 20  # of which the connect limit is 10


@pytest.mark.row(18)
def test_a_wrong_user_an_unknown_key_and_a_changed_key_are_told_apart_and_together(lab: Lab, desk: Path) -> None:
    cluster = lab.cluster()
    cluster["workers"][0]["ssh"]["user"] = "nobody-knows-me"
    others = desk / "known_hosts"
    others.write_text(lab["node-a"].known_hosts_line() + "\n")
    cluster["workers"][1]["ssh"]["known_hosts"] = str(others)
    lab.change_host_key("node-c")
    logs = {name: len(lab[name].sshd_log()) for name in ("node-b", "node-c")}
    output, _ = refused(lab, desk, cluster)
    assert "wrong user" in row_about("node-a", output)
    assert "is in no known_hosts file" in row_about("node-b", output)
    assert "another machine answers" in row_about("node-c", output)
    for name, length in logs.items():  # not even a name of a user was told before the key was accepted
        since = lab[name].sshd_log()[length:]
        assert lab.controller in since
        assert "user root" not in since
        assert "for root" not in since


@pytest.mark.row(18, 19)
def test_an_unknown_key_is_kept_where_the_cluster_file_says_so_noise_is_no_harm_and_each_host_sees_one_login(
    lab: Lab, desk: Path
) -> None:
    cluster = lone_ranks(lab)
    new = desk / "keys" / "known_hosts"
    for worker in cluster["workers"]:
        worker["ssh"] |= {"known_hosts": str(new), "host_key_policy": "accept_new"}
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    for host in lab.hosts:
        lab.noisy_shell(host.name, '*** Willkommen, größter! \x1b[31mred\x1b[0m {"type": "Started"} \x00\xff')
    before = logins(lab)
    with flodl(desk, *SHORT) as run:
        assert run.end(90) == 0, run.output
        assert run.result["status"] == "done"
        assert "\x1b[31m" not in run.output
    assert {name: count - before[name] for name, count in logins(lab).items()} == dict.fromkeys(before, 1)
    known = new.read_text()
    assert all(host.known_hosts_line().split()[-1] in known for host in lab.hosts)
    shutil.rmtree(desk / "run")
    lab.change_host_key("node-b")
    output, _ = refused(lab, desk, cluster)  # new, yes; changed, no
    assert hosts_named(output) == ["node-b"]
    assert "another machine answers" in row_about("node-b", output)


def logins(lab: Lab) -> dict[str, int]:
    """Host -> how often somebody was let in."""
    return {host.name: host.sshd_log().count("Accepted publickey") for host in lab.hosts}


@pytest.mark.row(19)
def test_a_login_shell_that_ends_by_itself_is_named_with_its_code(lab: Lab, desk: Path) -> None:
    codes = {"node-a": 3, "node-b": 0}
    for name, code in codes.items():
        lab.shell_exit(name, code)
    output, _ = refused(lab, desk)
    for name, code in codes.items():
        assert f"login shell ended with {code} before our program began" in row_about(name, output)
    assert hosts_named(output) == list(codes)
