"""What each host's agent is told, from a job and its roster: pure."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from flodl.decide.roster import roster
from flodl.engine.keys import make_keys
from flodl.engine.launches import host_calls, launches, passed_values, threads_by_host, told
from flodl.engine.payload import RankPayload, decode_host_secret, decode_payload
from flodl.engine.server import Endpoints
from flodl.errors import ConfigError
from flodl.ports import HostLaunch
from flodl.spec.cluster import ClusterSpec, ControllerSpec, HostSpec
from flodl.spec.job import JobSpec
from tests.engine.live import job

BOUND = Endpoints("tcp://10.0.0.1:5000", "tcp://10.0.0.1:5001")
TWO = (
    HostSpec(host="a", local_devices=(1, 0), env={"X": "host"}, nccl_socket_ifname="eth0", python=sys.executable),
    HostSpec(host="b", local_devices="cpu:1", path="/srv/p", arch="builds/sm61", data_path="/data", speed=0.5),
)


def a_job(*hosts: HostSpec, controller: str = "127.0.0.1", env_pass: tuple[str, ...] = ()) -> JobSpec:
    cluster = ClusterSpec(
        controller=ControllerSpec(host=controller), workers=hosts, env={"X": "all", "Y": "all"}, env_pass=env_pass
    )
    return job().replace(cluster=cluster)


def launched(a: JobSpec) -> tuple[HostLaunch, ...]:
    places = roster(a, {"a": 2})
    keys = make_keys(p.rank for p in places)
    return launches(a, places, run_id="r", keys=keys, endpoints=BOUND, threads={"a": 3, "b": 1, "here": 2})


def payload(host: HostLaunch, rank: int) -> RankPayload:
    return decode_payload(decode_host_secret(host.secret).payloads[rank])


def test_hosts_are_told_in_order_what_is_theirs() -> None:
    a, b = launched(a_job(*TWO, controller="10.0.0.1"))
    assert (a.label, a.ranks, a.devices, a.path) == ("a", (0, 1), ("cuda:1", "cuda:0"), str(Path.cwd()))
    assert (b.label, b.ranks, b.devices, b.path) == ("b", (2,), ("cpu",), "/srv/p")
    assert (payload(a, 0).threads, payload(b, 2).threads) == (3, 1)
    assert a.env == {"X": "host", "Y": "all"}
    assert b.env == {"X": "all", "Y": "all"}


def test_every_rank_is_told_its_place_the_whole_job_and_its_own_keys() -> None:
    whole = a_job(*TWO, controller="10.0.0.1")
    a, b = launched(whole)
    second, third = payload(a, 1), payload(b, 2)
    assert (second.rank, second.local_rank, second.device, second.torch_device) == (1, 1, "cuda:0", "cuda:0")
    assert payload(a, 0).torch_device == "cuda:0"  # it sees one card only, cuda:1 of the host
    assert (third.speed, third.data_path, third.path, third.torch_device) == (0.5, "/data", "/srv/p", "cpu")
    assert second.job == whole
    assert [place.rank for place in third.world] == [0, 1, 2]
    assert (third.control, third.bulk) == BOUND
    assert second.keys != third.keys
    assert second.server_key == third.server_key


def test_gloo_and_nccl_listen_on_the_named_interface_and_on_loopback_where_the_run_stays_here() -> None:
    a, b = launched(a_job(*TWO, controller="10.0.0.1"))
    assert payload(a, 0).interface == "eth0"
    assert payload(b, 2).interface is None
    (here,) = launched(a_job(HostSpec(host="here", local_devices="cpu:2")))
    assert payload(here, 0).interface == "lo"


def test_values_of_env_pass_are_in_the_secret_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    (host,) = launched(a_job(HostSpec(host="here", local_devices="cpu:1"), env_pass=("WANDB_API_KEY",)))
    assert decode_host_secret(host.secret).env == {"WANDB_API_KEY": "hunter2"}
    assert b"hunter2" not in msgspec.json.encode(msgspec.structs.replace(host, secret=b""))


def test_a_variable_of_env_pass_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        passed_values(("THERE", "GONE", "LOST"), {"THERE": "1"})
    assert [problem.value for problem in raised.value.problems] == ["GONE", "LOST"]
    assert str(raised.value.problems[0]).startswith("cluster.env_pass=GONE: is not set here")


def test_a_hosts_cores_are_shared_by_its_ranks_and_nobody_gets_less_than_one_thread() -> None:
    cluster, places = a_job(*TWO).cluster, roster(a_job(*TWO), {"a": 2})
    facts = {"a": {"cores": 9, "machine": "x"}, "b": {"cores": 4, "machine": "y"}}
    assert threads_by_host(cluster, places, facts) == {"a": 4, "b": 4}
    assert threads_by_host(cluster, places, {host: {"cores": 1, "machine": host} for host in "ab"}) == {"a": 1, "b": 1}


def test_the_threads_that_a_cluster_file_names_are_those_of_its_ranks() -> None:
    a, b = TWO
    named = a_job(msgspec.structs.replace(a, env={"OMP_NUM_THREADS": "7"}), b)
    facts = {host: {"cores": 6, "machine": host} for host in "ab"}
    assert threads_by_host(named.cluster, roster(named, {"a": 2}), facts) == {"a": 7, "b": 6}


def test_hosts_that_are_one_machine_under_several_names_share_its_cores() -> None:
    cluster, places = a_job(*TWO).cluster, roster(a_job(*TWO), {"a": 2})
    assert threads_by_host(cluster, places, {host: {"cores": 6, "machine": "x"} for host in "ab"}) == {"a": 2, "b": 2}


def test_a_call_tells_how_a_host_is_reached_and_what_can_be_warmed_up_there() -> None:
    a, b = host_calls(a_job(*TWO, env_pass=("TOKEN",)), here={"a"})
    assert (a.here, a.python, a.path) == (True, "", str(Path.cwd()))
    assert (b.here, b.python, b.path) == (False, "/srv/p/envs/builds/sm61/bin/python", "/srv/p")
    assert a.env == {"X": "host", "Y": "all"}
    assert a.withheld == b.withheld == {"TOKEN"}


def test_a_host_elsewhere_has_its_interpreter_where_ours_is_unless_it_names_one() -> None:
    here, there = host_calls(a_job(HostSpec(host="a"), HostSpec(host="b")), here={"a"})
    assert (here.python, there.python) == ("", sys.executable)


def test_hosts_dial_the_controllers_name_where_it_differs_from_what_was_bound() -> None:
    assert told(ControllerSpec(host="10.0.0.1"), BOUND) is BOUND
    told_ = told(ControllerSpec(host="gate.example", bind="10.0.0.1"), BOUND)
    assert told_ == ("tcp://gate.example:5000", "tcp://gate.example:5001")
    assert told(ControllerSpec(host="fd00::1", bind="10.0.0.1"), BOUND).bulk == "tcp://[fd00::1]:5001"
