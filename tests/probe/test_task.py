"""task=probe on this machine: its document, its exit code, and what is left out where there are errors."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import Struct

from flodl.engine.fleet import AgentFleet
from flodl.errors import NotReady
from flodl.ports import HostCall
from flodl.probe.finding import Finding
from flodl.probe.pairs import PairFigures
from flodl.probe.report import GpuUser
from flodl.probe.task import ProbeResult, probe
from flodl.spec.job import JobSpec
from tests.probe.jobs import copy, gpu, healthy, job_of

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "probe.schema.json").read_text())


class Done(Struct, frozen=True, kw_only=True):
    backend: str = "gloo"
    num_bytes: int = 1 << 20
    ms: float = 1.5
    trouble: str = ""


def validated(result: ProbeResult) -> dict[str, Any]:
    """The document as it is printed and read again."""
    document = json.loads(json.dumps(result.document()))
    jsonschema.validate(document, SCHEMA, jsonschema.Draft202012Validator)
    return document


def calls_of(job: JobSpec, path: Path) -> list[HostCall]:
    return [HostCall(spec=host, here=True, path=str(path), preload=()) for host in job.cluster.workers]


def test_a_healthy_machine_is_ready(fleet: AgentFleet, tmp_path: Path) -> None:
    job, said = job_of({"host": "localhost"}), []
    result = probe(job, fleet, calls_of(job, tmp_path), rehearse=lambda job, seen: Done(), say=said.append)
    document = validated(result)
    assert result.exit_code == document["exit_code"] == 0
    assert document["allreduce"] == {"backend": "gloo", "num_bytes": 1 << 20, "ms": 1.5}
    assert [host["host"] for host in document["hosts"]] == ["localhost"]
    assert said[0] == "looking at localhost"


def test_where_there_are_errors_nothing_is_timed(fleet: AgentFleet, tmp_path: Path) -> None:
    job = job_of({"host": "localhost", "nccl_socket_ifname": "none9"})

    def rehearse(job: JobSpec, seen: object) -> Done:
        raise AssertionError("timed")

    result = probe(job, fleet, calls_of(job, tmp_path / "none"), rehearse=rehearse)
    document = validated(result)
    assert result.exit_code == 1
    errors = [found["key"] for found in document["findings"] if found["severity"] == "error"]
    assert errors == ["cluster.workers[0].path", "cluster.workers[0].nccl_socket_ifname"]
    assert document["allreduce"] is None


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_told(fleet: AgentFleet, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = job_of({"host": "localhost"}, controller={"port": port})
        [found] = [f for f in probe(job, fleet, calls_of(job, tmp_path)).findings if f.severity == "error"]
    assert found.key == "cluster.controller"
    assert f"127.0.0.1, port {port}: Address already in use" in found.message
    away = job_of({"host": "localhost"}, controller={"host": "192.0.2.77"})
    [found] = [f for f in probe(away, fleet, calls_of(away, tmp_path)).findings if f.severity == "error"]
    assert "192.0.2.77" in found.message


@pytest.mark.parametrize(
    ("done", "words", "remedy"),
    [
        (Done(backend="nccl", trouble="it hangs"), "it hangs", "NCCL_P2P_DISABLE=1"),
        (Done(trouble="no route"), "no route", "nccl_socket_ifname"),
        (NotReady("localhost: did not start its ranks"), "did not start its ranks", "own words"),
    ],
)
def test_an_all_reduce_that_fails_is_an_error_with_a_remedy(
    fleet: AgentFleet, tmp_path: Path, done: Done | NotReady, words: str, remedy: str
) -> None:
    job = job_of({"host": "localhost"})

    def rehearse(job: JobSpec, seen: object) -> Done:
        if isinstance(done, NotReady):
            raise done
        return done

    result = probe(job, fleet, calls_of(job, tmp_path), rehearse=rehearse)
    assert validated(result)["allreduce"] is None
    assert result.exit_code == 1
    [found] = [f for f in result.findings if f.severity == "error"]
    assert found.key == "allreduce"
    assert words in found.message
    assert remedy in found.remedy


def test_the_schema_describes_everything_that_can_be_told() -> None:
    busy = gpu(users=(GpuUser(pid=1, name="x", memory_bytes=2),))
    full = healthy("a", gpus=(busy,), data=(copy("x"),), archs=("sm_80",), noise=("hi",), lent_gpus="0", driver="580")
    finding = Finding(severity="info", host="", key="gpu", message="m")
    pair = PairFigures(source="a", target="b", latency_ms=0.1, bytes_per_second=1e9)
    result = ProbeResult(hosts=("a", "b"), reports={"a": full}, findings=(finding,), pairs=(pair,), rehearsed=Done())
    document = validated(result)
    assert document["hosts"][1] == {"host": "b", "reachable": False}
    assert document["hosts"][0]["nccl"] == "2.27.5"
    for key in ("nccl", "gpus", "torch"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(
                {**document, "hosts": [{k: v for k, v in document["hosts"][0].items() if k != key}]}, SCHEMA
            )
