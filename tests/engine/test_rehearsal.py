"""The data plane is rehearsed by real ranks: a megabyte is averaged and timed, and who fails is told by name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from flodl.decide.roster import Place
from flodl.engine.fleet import AgentFleet
from flodl.engine.launches import host_calls
from flodl.engine.rehearsal import MARK, Rehearsed, _Hearing, rehearse
from flodl.errors import HostUnready
from flodl.ports import HostNotice
from flodl.spec.cluster import ClusterSpec, HostSpec
from flodl.spec.job import JobSpec
from tests.engine.live import job as a_job

HOST = "localhost"
PLACES = tuple(Place(rank=rank, host=HOST, device="cpu", batch_size=8) for rank in range(2))


def job_on(interface: str | None) -> JobSpec:
    host = HostSpec(host=HOST, local_devices="cpu:2", nccl_socket_ifname=interface)
    return a_job().replace(cluster=ClusterSpec(workers=(host,)))


@pytest.fixture(scope="module")
def fleet() -> Iterator[AgentFleet]:
    agents = AgentFleet()
    met = agents.meet(host_calls(job_on(None), [HOST]))[HOST]
    assert not isinstance(met, HostUnready), met
    yield agents
    agents.close(0.0)


def test_two_ranks_average_a_megabyte_and_the_agents_stay(fleet: AgentFleet) -> None:
    for _ in range(2):
        found = rehearse(job_on(None), PLACES, fleet, {HOST: 1})
        assert found == Rehearsed(backend="gloo", num_bytes=1 << 20, ms=found.ms)
        assert 0 < found.ms < 1000


def test_a_group_that_does_not_come_about_is_told_with_rank_and_cause(fleet: AgentFleet) -> None:
    found = rehearse(job_on("none9"), PLACES, fleet, {HOST: 1})
    assert (found.backend, found.ms) == ("gloo", 0.0)
    assert found.trouble.startswith("the all-reduce over gloo failed: rank ")
    assert f"(cpu of {HOST}) ended with exit code 1" in found.trouble
    assert "none9" in found.trouble


def told(rank: int, *times: float) -> HostNotice:
    return HostNotice(host=HOST, kind="line", rank=rank, text=MARK + msgspec.json.encode(times).decode())


def test_who_has_failed_is_named_and_not_those_that_wait_for_it() -> None:
    hearing = _Hearing({place.rank: place for place in PLACES})
    hearing.hear(HostNotice(host=HOST, kind="line", rank=1, text="NCCL WARN no way"))
    assert not hearing.is_over
    hearing.hear(HostNotice(host=HOST, kind="exit", rank=1, code=-11))
    assert hearing.is_over
    assert hearing.trouble() == f"rank 1 (cpu of {HOST}) was ended by SIGSEGV\n  | NCCL WARN no way"


def test_who_has_told_its_times_may_go_and_who_has_not_in_time_is_named() -> None:
    hearing = _Hearing({place.rank: place for place in PLACES})
    hearing.hear(told(0, 1.0))
    hearing.hear(HostNotice(host=HOST, kind="exit", rank=0, code=0))
    assert not hearing.is_over
    assert hearing.trouble() == f"rank 1 (cpu of {HOST}) has no sum after 30 s"
    hearing.hear(HostNotice(host=HOST, kind="gone", text="power cut"))
    assert "rank 1 (cpu of localhost) its host is lost: power cut" in hearing.trouble()


def test_all_that_have_told_is_no_trouble() -> None:
    hearing = _Hearing({place.rank: place for place in PLACES})
    for rank in (0, 1):
        hearing.hear(told(rank, 1.0, 2.0))
    assert hearing.is_over
    assert hearing.trouble() == ""
