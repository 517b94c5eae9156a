"""What a report means for a job: each error and each warning, with its host, its key and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.probe.finding import Finding
from flodl.probe.judge import judge
from flodl.probe.report import GpuUser, Interface, Library
from tests.probe.jobs import GIB, copy, gpu, healthy, job_of

PASCAL = (6, 1)


def of_one(worker: dict[str, Any] | None = None, *, mode: str = "auto", **report: Any) -> tuple[Finding, ...]:
    job = job_of({"host": "a", **(worker or {})}, mode=mode)
    return judge(job, {"a": healthy("a", **report)}, "1.0")


def of_two(one: dict[str, Any], other: dict[str, Any], *, mode: str = "auto", **job: Any) -> tuple[Finding, ...]:
    devices = {"local_devices": "all"} if "gpus" in one else {}
    made = job_of({"host": "a", **devices}, {"host": "b", **devices}, mode=mode, **job)
    return judge(made, {"a": healthy("a", **one), "b": healthy("b", **other)}, "1.0")


def test_a_healthy_host_gives_no_finding() -> None:
    assert of_one() == ()
    assert of_one({"local_devices": "all"}, gpus=(gpu(),)) == ()
    assert of_two({}, {}) == ()
    assert of_two({"gpus": (gpu(),)}, {"gpus": (gpu(),)}, mode="nccl_cadence") == ()


@pytest.mark.parametrize(
    ("worker", "report", "key", "words", "remedy"),
    [
        ({}, {"flodl": "0.9"}, "cluster.workers[0].python", "flodl 0.9", "/env/bin/python -m pip install flodl==1.0"),
        ({}, {"torch": "", "cuda": ""}, "cluster.workers[0].python", "has no torch", "task=setup"),
        ({}, {"path_exists": False}, "cluster.workers[0].path", "/srv/project does not exist", "deploy.code=rsync"),
        (
            {},
            {"missing_modules": ("mine",)},
            "cluster.workers[0].path",
            "the module mine is missing on a: it is not in /srv/project, nor installed there",
            "deploy.code=rsync",
        ),
        (
            {"env": {"LD_PRELOAD": "/x/libnccl.so.2"}},
            {"missing_preloads": ("/x/libnccl.so.2",)},
            "cluster.workers[0].env.LD_PRELOAD",
            "/x/libnccl.so.2 does not exist",
            "task=nccl_build",
        ),
        (
            {"env": {"LD_PRELOAD": "/x/libnccl.so.2"}},
            {"nccl": Library(path="/x/libnccl.so.2", trouble="wrong ELF class", is_preloaded=True)},
            "cluster.workers[0].env.LD_PRELOAD",
            "wrong ELF class",
            "cpu_*",
        ),
        ({"local_devices": "all"}, {}, "cluster.workers[0].local_devices", "no GPU was found", "cpu:N"),
        (
            {"local_devices": "all"},
            {"lent_gpus": ""},
            "cluster.workers[0].local_devices",
            "(CUDA_VISIBLE_DEVICES= there)",
            "cpu:N",
        ),
        (
            {"local_devices": [0, 2]},
            {"gpus": (gpu(0), gpu(1))},
            "cluster.workers[0].local_devices",
            "GPU 2 is not there: the host lends 2",
            "cpu:N",
        ),
        (
            {"local_devices": [0]},
            {"gpu_trouble": "NVML: Driver/library version mismatch"},
            "cluster.workers[0].local_devices",
            "Driver/library version mismatch",
            "nvidia-smi",
        ),
        (
            {"nccl_socket_ifname": "eth9"},
            {},
            "cluster.workers[0].nccl_socket_ifname",
            "eth9 is no network interface",
            "eth0 (10.0.0.1)",
        ),
        (
            {"nccl_socket_ifname": "eth0"},
            {"interfaces": (Interface(name="eth0", is_up=False),)},
            "cluster.workers[0].nccl_socket_ifname",
            "switched off",
            "ip link set eth0 up",
        ),
        (
            {"nccl_socket_ifname": "eth0"},
            {"interfaces": (Interface(name="eth0", is_up=True),)},
            "cluster.workers[0].nccl_socket_ifname",
            "has no address",
            "interfaces there",
        ),
    ],
)
def test_an_error_names_host_key_and_remedy(
    worker: dict[str, Any], report: dict[str, Any], key: str, words: str, remedy: str
) -> None:
    [found] = of_one(worker, **report)
    assert (found.severity, found.host, found.key) == ("error", "a", key)
    assert words in found.message
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("worker", "report", "key", "words"),
    [
        ({}, {"disk_free_bytes": 100 << 20}, "disk", "100 MiB are free at /srv/project"),
        ({}, {"disk_free_inodes": 3}, "disk", "3 more files"),
        ({}, {"memory_free_bytes": GIB // 2}, "memory", "512 MiB"),
        ({}, {"clock_offset_seconds": 30.0, "clock_error_seconds": 0.01}, "clock", "30.0 s ahead of"),
        ({}, {"clock_offset_seconds": -1.5}, "clock", "1.5 s behind"),
        ({}, {"noise": ("Welcome!", "2")}, "login", "2 lines of its own: 'Welcome!'"),
        ({"local_devices": "auto"}, {"gpu_trouble": "NVML: x"}, "cluster.workers[0].local_devices", "NVML: x"),
        (
            {"local_devices": "all"},
            {"gpus": (gpu(memory_free_bytes=20 * GIB, users=(GpuUser(pid=7, name="python"),)),)},
            "gpu",
            "4.0 of 24.0 GiB are in use by python 7",
        ),
        ({"local_devices": "all"}, {"gpus": (gpu(memory_free_bytes=20 * GIB),)}, "gpu", "that cannot be seen"),
        ({"local_devices": "all"}, {"gpus": (gpu(capability=(7, 5)),)}, "gpu", "no native bfloat16"),
    ],
)
def test_a_warning_forbids_nothing(worker: dict[str, Any], report: dict[str, Any], key: str, words: str) -> None:
    [found] = of_one(worker, **report)
    assert (found.severity, found.host, found.key) == ("warning", "a", key)
    assert words in found.message


def test_a_full_disk_is_an_error_where_files_are_pushed_to_it() -> None:
    worker = {"host": "elsewhere", "path": "/srv/project"}
    full = {"elsewhere": healthy("elsewhere", disk_free_bytes=0)}
    [found] = judge(job_of(worker, deploy={"code": "rsync"}), full, "1.0")
    assert (found.severity, found.key) == ("error", "cluster.workers[0].path")
    assert "the disk at /srv/project is full" in found.message
    assert "make room there" in found.remedy
    [found] = judge(job_of(worker), full, "1.0")
    assert found.severity == "warning"


def test_what_is_within_the_error_of_measuring_is_no_difference_of_clocks() -> None:
    assert of_one(clock_offset_seconds=4.0, clock_error_seconds=3.5) == ()


def test_gpus_that_do_not_train_are_nobodys_business() -> None:
    old = gpu(1, PASCAL, memory_free_bytes=0)
    assert of_one({"local_devices": "cpu:2"}, gpus=(old,), gpu_trouble="x") == ()
    assert of_one({"local_devices": [0]}, gpus=(gpu(0), old)) == ()


def test_an_unsupported_gpu_comes_with_the_command_to_paste_there() -> None:
    [error, *warnings] = of_one({"local_devices": "all"}, gpus=(gpu(0, PASCAL, name="GTX 1060"),))
    assert (error.severity, error.key) == ("error", "cluster.workers[0].python")
    assert "GPU 0 (GTX 1060, capability 6.1) is not supported by torch 2.13.0+cu130" in error.message
    command = "/env/bin/python -m pip install --upgrade 'torch>=2.10,<2.15' --index-url https://"
    assert command in error.remedy
    assert error.remedy.endswith("/cu126")
    assert [finding.severity for finding in warnings] == ["warning", "warning"]  # no Triton, no bfloat16


def test_what_the_build_says_of_itself_wins_over_what_is_known_of_wheels() -> None:
    built = {"gpus": (gpu(0, PASCAL),), "archs": ("sm_60",)}
    assert all(finding.severity == "warning" for finding in of_one({"local_devices": "all"}, **built))


def test_a_build_for_no_gpu_supports_none() -> None:
    [error] = of_one({"local_devices": "all"}, gpus=(gpu(),), torch="2.13.0+cpu", cuda="", nccl=Library())
    assert "built for no GPU at all" in error.message


def test_an_nccl_that_cannot_be_asked_is_an_error_where_it_is_needed_only() -> None:
    broken = {"nccl": Library(path="/l", trouble="no such file"), "gpus": (gpu(),)}
    assert [f.severity for f in of_one({"local_devices": "all"}, mode="nccl_cadence", **broken)] == ["error"]
    assert [f.severity for f in of_one({"local_devices": "all"}, **broken)] == ["warning"]
    assert of_one(**broken) == ()


@pytest.mark.parametrize(("mode", "severity"), [("nccl_sync", "error"), ("auto", "warning"), ("cpu_async", None)])
def test_nccl_of_two_kinds_forbids_nccl_modes(mode: str, severity: str | None) -> None:
    other = {"gpus": (gpu(),), "nccl": Library(path="/l", version="2.26.2")}
    found = of_two({"gpus": (gpu(),)}, other, mode=mode)
    assert [f.severity for f in found if f.key == "nccl"] == ([] if severity is None else [severity])
    for finding in found:
        assert "2.27.5 on a, 2.26.2 on b" in finding.message
        assert "task=nccl_build" in finding.remedy


def test_nccl_of_one_minor_version_agrees() -> None:
    patched = {"gpus": (gpu(),), "nccl": Library(path="/l", version="2.27.7")}
    assert of_two({"gpus": (gpu(),)}, patched, mode="nccl_sync") == ()


def test_torch_releases_that_differ_are_a_warning_and_builds_of_one_release_are_none() -> None:
    [found] = of_two({}, {"torch": "2.10.0+cu126"})
    assert (found.severity, found.key) == ("warning", "torch")
    assert "2.13.0+cu130 on a, 2.10.0+cu126 on b" in found.message
    assert of_two({}, {"torch": "2.13.0+cu126"}) == ()


def test_several_generations_are_an_information() -> None:
    [found] = of_two({"gpus": (gpu(capability=(12, 0), name="RTX 5060"),)}, {"gpus": (gpu(),)})
    assert (found.severity, found.key) == ("info", "gpu")
    assert "RTX 3090 (8.6), RTX 5060 (12.0)" in found.message


def test_the_loopback_interface_reaches_no_other_host() -> None:
    job = job_of({"host": "a", "nccl_socket_ifname": "lo"}, {"host": "b"})
    [found] = judge(job, {"a": healthy("a"), "b": healthy("b")}, "1.0")
    assert "lo reaches no other host" in found.message


# ------------------------------------------------------------------------------------------------------------- data


def data_findings(one: Any, other: Any, data: Any = "@data/digits.npz") -> tuple[Finding, ...]:
    return of_two({"data": one}, {"data": other}, data=data)


def test_a_copy_of_other_content_is_an_error_that_names_the_file() -> None:
    part = "digits.npz"
    [found] = data_findings((copy(part),), (copy(part, ends={"a": "2"}),))
    assert (found.severity, found.host, found.key) == ("error", "b", "cluster.workers[1].data_path")
    assert "a differs" in found.message
    assert "deploy.data=rsync" in found.remedy
    [shorter] = data_findings((copy(part),), (copy(part, signature="t", num_bytes=3, ends={}),))
    assert shorter.severity == "error"
    assert "1 file of 3 bytes; 1 file of 9 bytes there" in shorter.message


def test_files_of_other_names_are_a_warning_since_they_may_yield_the_same() -> None:
    [found] = data_findings((copy("digits.npz"),), (copy("digits.npz", names="m", num_files=3),))
    assert found.severity == "warning"


def test_missing_and_unreadable_data_are_errors_of_that_host() -> None:
    part = "digits.npz"
    gone, shut = copy(part, exists=False), copy(part, trouble="/data/x: Permission denied")
    [first, second] = data_findings((gone,), (shut,))
    assert (first.severity, first.host) == ("error", "a")
    assert "there is no /data/digits.npz" in first.message
    assert "Permission denied" in second.message


def test_of_alternative_places_one_is_enough() -> None:
    places = ["@data/one", "@data/two"]
    have = (copy("one", exists=False), copy("two"))
    assert data_findings(have, (copy("one"), copy("two", exists=False)), places) == ()
    gone = (copy("one", exists=False), copy("two", exists=False))
    [found] = data_findings(have, gone, places)
    assert "there is no /data/one or /data/two" in found.message
