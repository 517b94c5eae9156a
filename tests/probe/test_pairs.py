"""Ports and pairs, tried by real programs over real sockets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Mapping

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from flodl.engine.fleet import AgentFleet
from flodl.ports import HostCall
from flodl.probe.pairs import PROGRAM, _no_answer, _pair_findings, _rounds, measured, reachable
from flodl.probe.report import HostReport, Interface
from flodl.probe.wire import Listen, Outcome, Target, dial, listener
from flodl.spec.job import JobSpec
from tests.engine.live import children
from tests.probe.jobs import healthy, job_of

TOKEN = "0" * 32
LO = Interface(name="lo", is_up=True, addresses=("127.0.0.1",))


@pytest.fixture(scope="module")
def job(fleet: AgentFleet) -> JobSpec:
    made = job_of(*({"host": host, "nccl_socket_ifname": "lo"} for host in ("localhost", "one", "two")))
    fleet.meet([HostCall(spec=host, here=True, preload=()) for host in made.cluster.workers])
    return made


@pytest.fixture
def reports(job: JobSpec) -> dict[str, HostReport]:
    return {host.host: healthy(host.host, interfaces=(LO,)) for host in job.cluster.workers}


@pytest.fixture
def door() -> Mapping[str, str]:
    """An open port and a closed one."""
    with socket.create_server(("127.0.0.1", 0)) as open_one, socket.create_server(("127.0.0.1", 0)) as other:
        shut = other.getsockname()[1]
        other.close()
        yield {"open": f"tcp://127.0.0.1:{open_one.getsockname()[1]}", "shut": f"tcp://127.0.0.1:{shut}"}


def test_where_all_is_reachable_nothing_is_found(
    fleet: AgentFleet, job: JobSpec, reports: dict[str, HostReport], door: Mapping[str, str]
) -> None:
    assert reachable(job, fleet, reports, [door["open"]]) == ()


def test_an_agent_that_was_killed_is_told_as_gone_and_not_as_a_firewall() -> None:
    mine = job_of(*({"host": host, "nccl_socket_ifname": "lo"} for host in ("localhost", "one", "two")))
    fleet = AgentFleet()
    try:
        others = set(children(os.getpid()))
        fleet.meet([HostCall(spec=mine.cluster.workers[1], here=True, preload=())])
        agent = min(set(children(os.getpid())) - others)
        fleet.meet([HostCall(spec=host, here=True, preload=()) for host in mine.cluster.workers])
        errand = fleet.run("one", PROGRAM, encode(Listen(address="127.0.0.1", token=TOKEN)).decode())
        assert errand.line(20)
        os.kill(agent, signal.SIGKILL)
        assert errand.line(20) is None
        assert "the host's agent is gone: its agent was ended by SIGKILL" in _no_answer(None, errand)
        found = reachable(mine, fleet, {h.host: healthy(h.host, interfaces=(LO,)) for h in mine.cluster.workers}, [])
    finally:
        fleet.close(0.0)
    assert [(f.host, f.key) for f in found] == [("one", "network")]
    assert "the host's agent is gone: its agent was ended by SIGKILL" in found[0].message
    assert "dmesg" in found[0].remedy


def test_a_closed_port_of_the_controller_is_told_for_each_host(
    fleet: AgentFleet, job: JobSpec, reports: dict[str, HostReport], door: Mapping[str, str]
) -> None:
    found = reachable(job, fleet, reports, [door["open"], door["shut"]])
    assert [(f.severity, f.host, f.key) for f in found] == [
        ("error", host, "cluster.controller.port") for host in ("localhost", "one", "two")
    ]
    port = door["shut"].rpartition(":")[2]
    assert f"port {port}: refused" in found[0].message
    assert "127.0.0.1 is every host's own" in found[0].remedy


def test_an_address_that_cannot_be_listened_on_is_that_hosts_trouble(
    fleet: AgentFleet, job: JobSpec, reports: dict[str, HostReport]
) -> None:
    elsewhere = Interface(name="lo", is_up=True, addresses=("192.0.2.77",))
    [found] = reachable(job, fleet, {**reports, "one": replace(reports["one"], interfaces=(elsewhere,))}, [])
    assert (found.severity, found.host) == ("error", "one")
    assert "Cannot assign requested address" in found.message


def test_a_host_without_an_address_is_left_to_the_judgement(
    fleet: AgentFleet, job: JobSpec, reports: dict[str, HostReport]
) -> None:
    assert reachable(job, fleet, {**reports, "one": replace(reports["one"], interfaces=())}, []) == ()


def test_latency_and_bandwidth_of_every_ordered_pair(
    fleet: AgentFleet, job: JobSpec, reports: dict[str, HostReport]
) -> None:
    figures = measured(job, fleet, reports)
    names = ("localhost", "one", "two")
    assert [(f.source, f.target) for f in figures] == [(a, b) for a in names for b in names if a != b]
    assert all(0 < figure.latency_ms < 1000 for figure in figures)
    assert all(figure.bytes_per_second > 10e6 for figure in figures)


def test_strangers_are_not_served() -> None:
    with listener(Listen(address="127.0.0.1", token=TOKEN, peers=("127.0.0.1",))) as mine:
        target = Target(name="x", address="127.0.0.1", port=mine.getsockname()[1], is_host=True)
        assert dial(target, Listen(token=TOKEN), 0.0).trouble == ""
        assert dial(target, Listen(token="1" * 32), 0.0).trouble != ""
        assert dial(target, Listen(token=TOKEN, address="127.0.0.9"), 0.0).trouble != ""


def test_who_does_not_answer_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        crowd = []
        while len(crowd) < 8:  # whoever comes now waits for ever
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            crowd.append(one)
        found = dial(Target(name="x", address="127.0.0.1", port=full.getsockname()[1]), Listen(), 0.0)
        for one in crowd:
            one.close()
    assert "no answer within 3 s" in found.trouble


def test_bandwidth_is_what_the_other_side_has_counted() -> None:
    with listener(Listen(address="127.0.0.1", token=TOKEN, peers=("127.0.0.1",))) as mine:
        target = Target(name="x", address="127.0.0.1", port=mine.getsockname()[1], is_host=True)
        threads = [threading.Thread(target=dial, args=(target, Listen(token=TOKEN), 0.1)) for _ in range(2)]
        for thread in threads:
            thread.start()
        found = dial(target, Listen(token=TOKEN), 0.1)
        for thread in threads:
            thread.join()
    assert (found.trouble, found.bytes_per_second > 1e6) == ("", True)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8])
def test_a_tournament_holds_every_pair_once_and_a_host_at_most_once_in_a_round(count: int) -> None:
    names = [str(number) for number in range(count)]
    rounds = list(_rounds(names))
    pairs = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2
    for pairs in rounds:
        assert len({name for pair in pairs for name in pair}) == 2 * len(pairs)


def test_one_firewall_is_one_finding(job: JobSpec, reports: dict[str, HostReport]) -> None:
    no = "no answer within 3 s"
    found = {
        "localhost": [Outcome(name="one", trouble=no), Outcome(name="two")],
        "one": [Outcome(name="localhost", trouble=no), Outcome(name="two", trouble=no)],
        "two": [Outcome(name="one", trouble=no), Outcome(name="localhost")],
    }
    [finding] = _pair_findings(job, found, reports)
    assert (finding.host, finding.key) == ("one", "firewall")
    assert "cannot be reached from localhost, two and cannot reach localhost, two over lo" in finding.message
    assert "TCP ports 32768 to 60999" in finding.remedy


def test_a_way_that_is_closed_in_one_direction_names_who_is_not_reached(
    job: JobSpec, reports: dict[str, HostReport]
) -> None:
    [finding] = _pair_findings(job, {"one": [Outcome(name="two", trouble="refused")]}, reports)
    assert finding.host == "two"
    assert "cannot be reached from one over lo: refused" in finding.message
