"""A cluster file says hosts and devices; what cannot be is refused with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.errors import ConfigError
from flodl.spec.codec import decode_job
from flodl.spec.devices import cpu_count, device_fault, named_count
from flodl.spec.environment import looks_secret
from tests.spec.trees import worker, workers

TWO = {"nccl_socket_ifname": "eth0"}


def refused(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        decode_job(tree)
    return [str(problem) for problem in caught.value.problems]


def test_a_run_needs_a_worker() -> None:
    assert refused(workers()) == ["cluster.workers=[]: a run needs at least one worker; cluster=local is this machine"]


def test_a_label_stands_once() -> None:
    (said,) = refused(workers(worker("a", **TWO), worker("b", **TWO), worker("a", **TWO)))
    assert said.startswith("cluster.workers[2].host=a: is the label of workers[0] already")


def test_several_hosts_name_their_interfaces() -> None:
    (said,) = refused(workers(worker("a", **TWO), worker("b")))
    assert said.startswith("cluster.workers[1].nccl_socket_ifname=null: must name b's network interface")
    assert decode_job(workers(worker("a"))).cluster.workers[0].nccl_socket_ifname is None


def test_ranks_are_not_written_by_people() -> None:
    (said,) = refused(workers(worker(ranks=[0, 1])))
    assert said.endswith("ranks are counted in the order of the hosts: leave the key out")


@pytest.mark.parametrize("devices", ["all", "auto", "cpu:1", "cpu:64", [0], [3, 1]])
def test_devices_are_named_so(devices: Any) -> None:
    assert decode_job(workers(worker(local_devices=devices)))


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("gpu", "names no device; write all, auto, cpu:2 or a list of GPU numbers"),
        ("cpu:0", "names no device"),
        ("cpu:-1", "names no device"),
        ("cpu:2 ", "names no device"),
        ([], "names no device"),
        ([1, 0, 1], "names GPU 1 twice; one rank per GPU"),
    ],
)
def test_devices_are_not_named_so(devices: Any, words: str) -> None:
    (said,) = refused(workers(worker(local_devices=devices)))
    assert words in said


def test_devices_are_counted_where_they_are_named() -> None:
    assert [named_count(d) for d in ("cpu:3", (0, 2), "all", "auto")] == [3, 2, None, None]
    assert cpu_count((0, 1)) is None
    assert device_fault("auto") is None


def test_speeds_slow_down_and_fit_the_devices() -> None:
    assert decode_job(workers(worker(local_devices="cpu:2", speed=[1, 0.4]))).cluster.workers[0].speed == (1.0, 0.4)
    assert decode_job(workers(worker(local_devices="all", speed=[1, 0.4, 0.2])))
    assert "a device can only be slowed down" in refused(workers(worker(speed=1.5)))[0]
    assert "one number per device, and local_devices names 2 devices" in refused(
        workers(worker(local_devices="cpu:2", speed=[1.0]))
    )[0]  # fmt: skip
    assert "local_devices names all" in refused(workers(worker(local_devices="all", speed=[])))[0]


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a\nb"])
def test_a_host_has_a_name(host: str) -> None:
    assert "is no name of a host" in refused(workers(worker(host)))[0]


def test_an_interpreter_is_an_absolute_path() -> None:
    (said,) = refused(workers(worker(python="python3")))
    assert "must be an absolute path; remote shells are non-login shells" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CUDA_VISIBLE_DEVICES", "devices are named by local_devices"),
        ("CUDA_DEVICE_ORDER", "it is always PCI_BUS_ID"),
        ("FLODL_CLUSTER", "names that begin so are flodl's own"),
        ("RANK", "ranks are counted"),
        ("WORLD_SIZE", "ranks are counted"),
        ("MASTER_ADDR", "use controller.host and .port"),
        ("NCCL_SOCKET_IFNAME", "use nccl_socket_ifname"),
        ("MKL_NUM_THREADS", "OMP_NUM_THREADS in env counts for all of them"),
        ("1A", "is no name of a variable"),
        ("A B", "is no name of a variable"),
        ("A=B", "is no name of a variable"),
    ],
)
def test_reserved_and_impossible_variables_are_refused_everywhere(name: str, words: str) -> None:
    found = refused(workers(worker(env={name: "x"}), env={name: "x"}, env_pass=[name]))
    assert len(found) == 3
    assert all(words in said for said in found)


def test_a_secret_belongs_into_env_pass_and_is_not_repeated() -> None:
    (said,) = refused(workers(worker(env={"WANDB_API_KEY": "hunter2"})))
    assert "cluster.env_pass=[WANDB_API_KEY]" in said
    assert "hunter2" not in said
    assert decode_job(workers(worker(), env_pass=["WANDB_API_KEY"])).cluster.env_pass == ("WANDB_API_KEY",)


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "DB_PASSWORD", "aws_secret", "APIKEY2", "X_KEYS"])
def test_it_looks_like_a_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "KEYBOARD", "LD_PRELOAD", "USER"])
def test_it_looks_like_no_secret(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (0.5, "0.5"), (True, "true")])
def test_the_value_of_a_variable_is_text_and_every_other_is_named(value: object, text: str) -> None:
    said = refused(workers(worker(env={"A": value, "B": "x"}), env={"C": value}))
    assert said == [
        f'cluster.workers[0].env.A={text}: must be text; put it in quotes: A: "{text}"',
        f'cluster.env.C={text}: must be text; put it in quotes: C: "{text}"',
    ]


def test_a_secret_that_is_no_text_is_not_shown() -> None:
    (said,) = refused(workers(worker(env={"WANDB_API_KEY": 12345})))
    assert "12345" not in said
    assert "cluster.env_pass=[WANDB_API_KEY]" in said


def test_variables_are_a_map() -> None:
    assert "cluster.workers[0].env=A: must be a map of names to text" in refused(workers(worker(env="A")))[0]


def test_a_variable_holds_no_nul() -> None:
    assert "holds a NUL byte" in refused(workers(worker(env={"A": "x\0y"})))[0]


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "1.5"])
def test_threads_are_a_whole_number_and_belong_into_env(value: str) -> None:
    here, everywhere, passed = refused(
        workers(worker(env={"OMP_NUM_THREADS": value}), env={"OMP_NUM_THREADS": value}, env_pass=["OMP_NUM_THREADS"])
    )[:3]
    assert "must be a whole number >= 1" in here
    assert "must be a whole number >= 1" in everywhere
    assert "write it under env" in passed
