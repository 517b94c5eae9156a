"""Ranks are numbered in the order of the cluster file; what the counted devices make wrong is told together."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.decide.roster import Place, resolve_mode, roster
from flodl.errors import ConfigError
from flodl.spec.cluster import ClusterSpec, HostOverrides, HostSpec
from flodl.spec.job import CallbacksConfig, JobSpec, TrainerConfig
from tests.scenarios.rigs import job_of


def job(*hosts: HostSpec, mode: str = "cpu_cadence", **blocks: Any) -> JobSpec:
    return job_of(mode, cluster=ClusterSpec(workers=hosts), trainer=TrainerConfig(batch_size=32), **blocks)


def problems(asked: JobSpec, gpus: dict[str, int] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        roster(asked, gpus or {})
    return str(refused.value)


def test_ranks_are_numbered_in_host_order() -> None:
    hosts = (
        HostSpec(host="a", local_devices="all"),
        HostSpec(host="b", local_devices=(1, 0), overrides=HostOverrides(batch_size=8), speed=(1.0, 0.5)),
        HostSpec(host="c", local_devices="cpu:2", speed=0.4),
        HostSpec(host="d"),
    )
    places = roster(job(*hosts), {"a": 2, "b": 4})
    assert [(p.rank, p.host, p.device, p.batch_size, p.speed) for p in places] == [
        (0, "a", "cuda:0", 32, 1.0),
        (1, "a", "cuda:1", 32, 1.0),
        (2, "b", "cuda:1", 8, 1.0),
        (3, "b", "cuda:0", 8, 0.5),
        (4, "c", "cpu", 32, 0.4),
        (5, "c", "cpu", 32, 0.4),
        (6, "d", "cpu", 32, 1.0),
    ]


def test_auto_devices_are_all_gpus_or_one_cpu_rank() -> None:
    assert [p.device for p in roster(job(HostSpec(host="a")), {"a": 2})] == ["cuda:0", "cuda:1"]
    assert [p.device for p in roster(job(HostSpec(host="a")), {})] == ["cpu"]


def test_all_without_a_gpu_is_a_broken_driver_and_names_the_way_to_mean_it() -> None:
    text = problems(job(HostSpec(host="a", local_devices="all")))
    assert "no GPU was found on a" in text
    assert "cpu:N" in text


@pytest.mark.parametrize("asked", ["gpu", "cpu:0", "cpu:x", "cpu"])
def test_a_word_that_is_no_choice_of_devices_is_refused(asked: str) -> None:
    text = problems(job(HostSpec(host="a", local_devices=asked)))
    assert f"cluster.workers[0].local_devices={asked}" in text
    assert "cpu:N" in text


def test_devices_that_are_not_there_or_named_twice_are_refused_together() -> None:
    text = problems(job(HostSpec(host="a", local_devices=(0, 0, 7))), {"a": 2})
    assert "local_devices=7: a has 2 GPUs" in text
    assert "must name each device once" in text
    assert "must name each device once" in problems(job(HostSpec(host="a", local_devices=())))


def test_a_list_of_speeds_has_one_per_device() -> None:
    assert "a has 2 devices" in problems(job(HostSpec(host="a", local_devices="cpu:2", speed=(1.0,))))


def test_nccl_wants_a_gpu_per_rank_and_names_the_cpu_mode() -> None:
    assert "use elche=cpu_sync" in problems(job(HostSpec(host="a", local_devices="cpu:2"), mode="nccl_sync"))
    assert roster(job(HostSpec(host="a"), mode="nccl_cadence"), {"a": 2})
    assert roster(job(HostSpec(host="a"), mode="nccl_cadence"), {}), "one device in all: the mode is ignored"


def test_two_ranks_on_one_gpu_are_refused_under_nccl() -> None:
    hosts = (HostSpec(host="a", local_devices=(0,)), HostSpec(host="a", local_devices=(0,)))
    assert "two ranks share a GPU" in problems(job(*hosts, mode="nccl_cadence"), {"a": 1})


def test_one_gpu_under_two_host_names_is_refused_under_nccl_and_named() -> None:
    hosts = (HostSpec(host="a", local_devices=(1,)), HostSpec(host="alias-of-a", local_devices="all"))
    uuids = {"a": ("GPU-0", "GPU-1"), "alias-of-a": ("gpu-1",)}
    with pytest.raises(ConfigError) as refused:
        roster(job(*hosts, mode="nccl_sync"), {"a": 2, "alias-of-a": 1}, uuids)
    assert str(refused.value) == (
        "elche.mode=nccl_sync: two ranks share a GPU, and NCCL refuses that: rank 0 (a cuda:1) and rank 1 "
        "(alias-of-a cuda:0) have one (GPU-1); use elche=cpu_sync, or lend each GPU under one host only"
    )
    auto = roster(job(*hosts, mode="auto"), {"a": 2, "alias-of-a": 1}, uuids)
    assert resolve_mode(auto) == "cpu_cadence"
    assert [place.uuid for place in auto] == ["GPU-1", "gpu-1"]


def test_gpus_of_their_own_are_told_apart_by_uuid_and_by_place() -> None:
    hosts = (HostSpec(host="a"), HostSpec(host="b"))
    known = roster(job(*hosts, mode="nccl_sync"), {"a": 1, "b": 1}, {"a": ("GPU-0",), "b": ("GPU-1",)})
    assert resolve_mode(known) == "nccl_cadence"
    unknown = roster(job(*hosts, mode="nccl_sync"), {"a": 1, "b": 1}, {"a": ()})
    assert [place.uuid for place in unknown] == ["", ""]
    assert resolve_mode(unknown) == "nccl_cadence"
    assert roster(job(HostSpec(host="a", local_devices="cpu:2")), {}, {"a": ("GPU-0",)})[1].uuid == ""


def test_ranks_that_the_user_names_must_exist() -> None:
    asked = job(HostSpec(host="a"), elche={"anchor_rank": 3}, callbacks=CallbacksConfig(policy=2))
    text = problems(asked)
    assert "elche.anchor_rank=3: ranks are 0..0" in text
    assert "callbacks.policy=2" in text


def test_there_is_one_partition_ratio_per_rank() -> None:
    text = problems(job(HostSpec(host="a", local_devices="cpu:2"), elche={"partition_ratios": (1.0,)}))
    assert "elche.partition_ratios=[1.0]: there are 2 ranks" in text
    assert roster(job(HostSpec(host="a", local_devices="cpu:2"), elche={"partition_ratios": (1.0, 2.0)}), {})


@pytest.mark.parametrize(
    ("devices", "mode"),
    [(["cuda:0", "cuda:1"], "nccl_cadence"), (["cuda:0", "cuda:0"], "cpu_cadence"), (["cuda:0", "cpu"], "cpu_cadence")],
)
def test_auto_is_nccl_where_every_rank_has_a_gpu_of_its_own(devices: list[str], mode: str) -> None:
    places = [Place(rank=rank, host="a", device=device, batch_size=1) for rank, device in enumerate(devices)]
    assert resolve_mode(places) == mode
