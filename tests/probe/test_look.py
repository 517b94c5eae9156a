"""A look at hosts through their agents: reports, clocks, and every trouble as a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from flodl.engine.fleet import AgentFleet
from flodl.errors import HostUnready
from flodl.ports import Greeting, HostCall
from flodl.probe.look import Looked, look, with_torch
from flodl.probe.report import HostReport
from flodl.spec.job import JobSpec
from tests.probe.jobs import gpu, healthy, job_of


def calls_of(job: JobSpec, path: Path, **by_host: str) -> list[HostCall]:
    return [
        HostCall(spec=host, here=True, path=str(path), python=by_host.get(host.host, ""), preload=())
        for host in job.cluster.workers
    ]


def two(**job: Any) -> JobSpec:
    return job_of(
        {"host": "localhost", "nccl_socket_ifname": "lo"}, {"host": "other", "nccl_socket_ifname": "lo"}, **job
    )


def test_every_host_reports_and_its_clock_is_this_one(fleet: AgentFleet, tmp_path: Path) -> None:
    job = two()
    seen = look(job, fleet, calls_of(job, tmp_path))
    assert list(seen.reports) == ["localhost", "other"]
    for host, report in seen.reports.items():
        assert report.host == host
        assert report.path == str(tmp_path)
        assert abs(report.clock_offset_seconds) <= report.clock_error_seconds + 0.05
        assert 0 < report.latency_ms < 5000
    assert seen.counts == {host: len(report.gpus) for host, report in seen.reports.items()}
    assert {finding.key.rpartition(".")[2] for finding in seen.findings} <= {"nccl_socket_ifname", "memory", "disk"}


def test_a_host_that_cannot_be_met_is_one_finding_and_the_others_are_looked_at(
    fleet: AgentFleet, tmp_path: Path
) -> None:
    job = two()
    seen = look(job, fleet, calls_of(job, tmp_path, other="/no/such/python"))
    assert list(seen.reports) == ["localhost"]
    [found] = [finding for finding in seen.findings if finding.host == "other"]
    assert (found.severity, found.key) == ("error", "python")
    assert "/no/such/python" in found.message
    assert found.remedy
    assert seen.unready["other"].kind == "no_python"


def test_data_is_looked_at_where_there_is_another_host(fleet: AgentFleet, tmp_path: Path) -> None:
    job = two(data="@data/digits.npz")
    seen = look(job, fleet, calls_of(job, tmp_path))
    missing = [finding for finding in seen.findings if finding.key.endswith(".data_path")]
    assert [finding.host for finding in missing] == ["localhost", "other"]
    assert f"there is no {tmp_path}/data/digits.npz" in missing[0].message


def test_on_this_machine_alone_the_ranks_tell_what_is_missing_and_the_task_looks(
    fleet: AgentFleet, tmp_path: Path
) -> None:
    job = job_of({"host": "localhost"}, data="@data/digits.npz")
    [call] = calls_of(job, tmp_path)
    assert [f for f in look(job, fleet, [call]).findings if f.key.endswith(".data_path")] == []
    task = look(job, fleet, [call], is_gate=False)
    assert [f.severity for f in task.findings if f.key.endswith(".data_path")] == ["error"]


class Answers:
    """A fleet whose program answers with these lines."""

    def __init__(self, *lines: str, code: int | None = 0) -> None:
        self.lines, self.code = list(lines), code

    def meet(self, calls: Any) -> dict[str, Greeting | HostUnready]:
        return {call.label: Greeting(host=call.label, facts={}, noise=("\x1b[31mhello", "x")) for call in calls}

    def run(self, host: str, module: str, given: str = "") -> Answers:
        return self

    def line(self, timeout_seconds: float) -> str | None:
        return self.lines.pop(0) if self.lines else None

    def give(self, line: str) -> None:
        pass

    def end(self) -> int | None:
        return self.code

    def errors(self) -> tuple[str, ...]:
        return ("Traceback", "ImportError: no module named flodl.probe.host")

    def fan_out(self) -> Any:
        raise AssertionError

    def close(self, grace_seconds: float) -> None:
        pass


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        (Answers("Last login: today"), "protocol", "a malformed answer"),
        (Answers('{"cores": "many"}'), "protocol", "Expected `int`"),
        (Answers("\x1b[2Jgone"), "protocol", "'gone'"),
        (Answers(code=1), "protocol", "exit code 1 and no report\n  | Traceback\n  | ImportError"),
        (Answers(code=None), "timeout", "no report within 20 s"),
    ],
)
def test_an_answer_that_is_none_is_said_to_be(answers: Answers, kind: str, words: str) -> None:
    job = job_of({"host": "a"})
    seen = look(job, answers, [HostCall(spec=job.cluster.workers[0])])
    assert seen.reports == {}
    assert seen.unready["a"].kind == kind
    [found] = seen.findings
    assert words in found.message
    assert (found.severity, found.host) == ("error", "a")


def test_the_clock_is_compared_with_half_the_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    report = msgspec.json.encode(HostReport(flodl="", torch="2.13.0", path_exists=True)).decode()
    late = [str(time.time() - 100.0), "nonsense", str(time.time() - 100.0)]
    job = job_of({"host": "a"})
    seen = look(job, Answers(report, *late), [HostCall(spec=job.cluster.workers[0])])
    told = seen.reports["a"]
    assert told.clock_offset_seconds == pytest.approx(-100.0, abs=0.5)
    assert told.noise == ("hello", "x")
    assert {"clock", "login"} <= {finding.key for finding in seen.findings}


class Loading(Answers):
    """Its warm process has loaded torch when it is met for the third time."""

    def __init__(self, *lines: str, torch: dict[str, str]) -> None:
        super().__init__(*lines)
        self.torch, self.meetings = torch, 0

    def meet(self, calls: Any) -> dict[str, Greeting | HostUnready]:
        self.meetings += 1
        known = self.torch if self.meetings > 2 else {}
        return {call.label: Greeting(host=call.label, facts={}, torch=known) for call in calls}


def unsupported(seen: Looked) -> list[str]:
    return [finding.message for finding in seen.findings if "not supported" in finding.message]


def test_what_torch_says_of_itself_replaces_what_was_read_about_it() -> None:
    card = gpu(capability=(6, 1))
    report = msgspec.json.encode(healthy("", torch="2.13.0+cu130", cuda="13.0", gpus=(card,))).decode()
    facts = {"torch": "2.13.0+cu126", "cuda": "12.6", "archs": "sm_50 sm_60"}
    job = job_of({"host": "a", "local_devices": "all"})
    calls = [HostCall(spec=job.cluster.workers[0])]
    fleet = Loading(report, torch=facts)
    first = look(job, fleet, calls)
    assert "torch 2.13.0+cu130" in unsupported(first)[0]
    then = with_torch(job, fleet, calls, first)
    assert fleet.meetings == 3
    assert unsupported(then) == []
    assert (then.reports["a"].torch, then.reports["a"].archs) == ("2.13.0+cu126", ("sm_50", "sm_60"))


def test_nobody_waits_for_torch_where_no_gpu_trains() -> None:
    job = job_of({"host": "a", "local_devices": "cpu:2"})
    calls = [HostCall(spec=job.cluster.workers[0])]
    fleet = Loading(msgspec.json.encode(healthy("", gpus=(gpu(),))).decode(), torch={})
    first = look(job, fleet, calls)
    with_torch(job, fleet, calls, first)
    assert fleet.meetings == 1
