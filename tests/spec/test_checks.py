"""Contradictions are errors; what a mode ignores is a warning, so that one override can span a sweep over modes."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.errors import ConfigError
from flodl.spec.checks import ineffective
from flodl.spec.codec import decode_job
from flodl.spec.elche import MODES
from flodl.spec.outer import DiLoCoConfig
from tests.spec.trees import tree, worker, workers


def warnings(**elche: Any) -> dict[str, str]:
    gpus = workers(worker(local_devices="all"))
    return {p.key: p.constraint for p in ineffective(decode_job(gpus | {"elche": elche}))}


@pytest.mark.parametrize("mode", ["auto", *MODES])
def test_defaults_warn_of_nothing(mode: str) -> None:
    assert warnings(mode=mode) == {}


@pytest.mark.parametrize("mode", ["auto", "nccl_sync", "cpu_sync", "nccl_cadence", "cpu_cadence"])
def test_elastic_averaging_is_ignored_outside_cpu_async(mode: str) -> None:
    found = warnings(mode=mode, average="parameters", easgd_alpha=0.5, easgd_beta=0.2, max_overshoot=5)
    assert set(found) == {"elche.easgd_alpha", "elche.easgd_beta", "elche.max_overshoot"}
    assert found["elche.easgd_alpha"] == f"is ignored: only cpu_async uses it, and the mode is {mode}"


def test_elastic_averaging_needs_its_alpha() -> None:
    assert set(warnings(mode="cpu_async", easgd_beta=0.2, center="consensus")) == {"elche.easgd_beta", "elche.center"}
    assert warnings(mode="cpu_async", easgd_alpha=0.5, easgd_beta=0.2, max_overshoot=5) == {}
    assert set(warnings(mode="cpu_async", easgd_alpha=0.5, easgd_beta=0.2, center="consensus")) == {"elche.easgd_beta"}


@pytest.mark.parametrize("mode", ["auto", "nccl_cadence", "cpu_cadence", "cpu_async"])
def test_fixed_parts_are_for_sync_modes(mode: str) -> None:
    assert set(warnings(mode=mode, partition_ratios=[1, 1])) == {"elche.partition_ratios"}


def test_fixed_parts_replace_the_split() -> None:
    assert warnings(mode="cpu_sync", partition_ratios=[1, 1]) == {}
    assert set(warnings(mode="cpu_sync", partition_ratios=[1, 1], split="equal")) == {"elche.split"}


def test_a_sync_mode_has_anchor_1_whatever_is_said() -> None:
    found = warnings(mode="cpu_sync", anchor=5, min_anchor=2, max_anchor=9, overhead_target=0.2, relax_up=True)
    assert set(found) == {f"elche.{k}" for k in ("anchor", "min_anchor", "max_anchor", "overhead_target", "relax_up")}


def test_an_interpreter_wins_over_a_software_environment_audibly() -> None:
    job = decode_job(workers(worker(arch="sm61", python="/usr/bin/python3")))
    (warning,) = ineffective(job)
    assert str(warning) == "cluster.workers[0].arch=sm61: is ignored: python=/usr/bin/python3 names the interpreter"


def test_a_deterministic_run_is_not_promised_in_cpu_async() -> None:
    parts: dict[str, Any] = {"trainer": {"deterministic": True}}
    assert [p.key for p in ineffective(decode_job(tree(elche={"mode": "cpu_async"}, **parts)))] == [
        "trainer.deterministic"
    ]
    assert ineffective(decode_job(tree(elche={"mode": "cpu_cadence"}, **parts))) == ()


@pytest.mark.parametrize("mode", ["nccl_sync", "nccl_cadence"])
def test_nccl_wants_gpus(mode: str) -> None:
    a = worker("a", nccl_socket_ifname="e0", local_devices=[0])
    b = worker("b", nccl_socket_ifname="e0", local_devices="cpu:2")
    with pytest.raises(ConfigError) as caught:
        decode_job(workers(a, b) | {"elche": {"mode": mode}})
    (problem,) = caught.value.problems
    assert problem.constraint == "NCCL averages GPUs, and cluster.workers[1] (b) lends cpu:2"
    assert problem.remedy == f"use elche={mode.replace('nccl', 'cpu')}, or lend GPUs"


def test_loading_ahead_is_ignored_where_nothing_is_loaded_ahead() -> None:
    def ignored(**loader: object) -> list[str]:
        return [p.key for p in ineffective(decode_job(tree(loader=loader)))]

    assert ignored(num_workers=0, prefetch=4) == ["loader.prefetch"]
    assert ignored(resident=True, num_workers=4, pin_memory=False) == ["loader.num_workers", "loader.pin_memory"]
    assert ignored(num_workers=4, prefetch=4, pin_memory=False) == []


@pytest.mark.parametrize("name", ["slowmo", "diloco"])
@pytest.mark.parametrize(
    ("elche", "why"),
    [
        ({"mode": "cpu_sync"}, "elche=cpu_sync averages gradients"),
        ({"mode": "cpu_cadence", "average": "gradients"}, "elche=cpu_cadence averages gradients"),
        ({"mode": "cpu_async", "easgd_alpha": 0.5}, "elche.easgd_alpha=0.5 keeps replicas off it"),
    ],
)
def test_an_outer_optimizer_needs_a_consensus_of_parameters(name: str, elche: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"outer.name={name}: .*{why}"):
        decode_job(tree(elche=elche, outer={"name": name}))


@pytest.mark.parametrize(
    "elche",
    [{"mode": "cpu_sync", "average": "parameters"}, {"mode": "cpu_cadence", "easgd_alpha": 0.5}, {"mode": "cpu_async"}],
)
def test_an_outer_optimizer_goes_with_averaged_parameters(elche: dict[str, Any]) -> None:
    assert decode_job(tree(elche=elche, outer={"name": "diloco", "mu": 0.8})).outer == DiLoCoConfig(mu=0.8)


def test_beside_a_loop_of_ones_own_whatever_it_does_not_read_is_ignored_and_said() -> None:
    mine = {"_target_": "mine.gan", "_partial_": True}
    overrides = {"batch_size": 8, "num_workers": 1, "precision": "float32"}
    join = {"min_ranks": 1, "timeout_seconds": 9}
    cluster = {"workers": [worker(overrides=overrides)], "controller": {"join": join}}
    trainer = {"num_epochs": 3, "max_grad_norm": 1.0, "precision": "bfloat16", "compile": True, "accumulate": 2,
               "ema": 9, "batch_size": 32, "seed": 3, "deterministic": True}  # fmt: skip
    told = ineffective(decode_job(tree(
        loop=mine, checkpoint={"resume_from": "runs/a"}, callbacks={"policy": 1}, stop={"max_samples": 5},
        outer={"name": "diloco"}, guard={"name": "none"}, trainer=trainer, eval={"every_epochs": 5}, cluster=cluster,
        elche={"mode": "cpu_cadence", "anchor": 3}, membership={"max_failure": 2, "rejoin": True, "timeout_scale": 2.0},
    )))  # fmt: skip
    assert [p.key for p in told] == [
        "guard", "outer", "elche.anchor", "membership.max_failure", "membership.rejoin", "trainer.num_epochs",
        "trainer.accumulate", "trainer.precision", "trainer.compile", "trainer.max_grad_norm", "trainer.ema",
        "eval.every_epochs", "stop.max_samples", "checkpoint.resume_from", "callbacks.policy",
        "cluster.controller.join.min_ranks", "cluster.workers[0].overrides.precision",
    ]  # fmt: skip
    assert {p.constraint for p in told} == {"is ignored: loop=mine.gan is a training loop of your own"}
    assert ineffective(decode_job(tree(loop=mine))) == ()
