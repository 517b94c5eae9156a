"""A chain, a config and a command line are three ways to say one job: the specs are equal, byte for byte."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flodl import (
    CheckpointConfig,
    ClusterBuilder,
    ConfigError,
    DiLoCoConfig,
    ElCheConfig,
    EpochCallbackPolicy,
    HostOverrides,
    MsfGuardConfig,
    NotReady,
    StopConfig,
    Trainer,
    TrainerConfig,
)
from flodl.datasets.synthetic import synthetic
from flodl.decide.schedule import Cosine
from flodl.models.mlp import MLP
from flodl.spec.codec import canonical_json
from flodl.spec.job import JobSpec
from flodl.steps.classification import Classification
from tests.conf.composing import job, shipped
from tests.door import parts

POINTS = "{_target_: tests.door.parts.points}"
JUDGED = "{_target_: tests.door.parts.points, seed: 1}"


def typed(*words: str) -> JobSpec:
    with shipped():
        return job(words)


def same(*specs: JobSpec) -> bool:
    return len({canonical_json(spec) for spec in specs}) == 1


def test_the_promised_chain_config_and_command_line_are_one_job() -> None:
    chain = (
        Trainer.builder("resnet20", "sgd", "classification")
        .dataset("digits")
        .batch_size(64)
        .num_epochs(5)
        .elche(ElCheConfig.cpu_async(easgd_alpha=0.6))
        .max_grad_norm(5.0)
    )
    config = TrainerConfig(dataset="digits", batch_size=64, num_epochs=5, max_grad_norm=5.0,
                           elche=ElCheConfig.cpu_async().replace(easgd_alpha=0.6))  # fmt: skip
    words = ("elche=cpu_async", "elche.easgd_alpha=0.6", "trainer.num_epochs=5", "trainer.max_grad_norm=5.0")
    assert same(chain.spec(), Trainer.spec("resnet20", "sgd", "classification", config), typed(*words))


def test_callables_are_the_import_paths_that_a_config_would_name() -> None:
    config = TrainerConfig(
        dataset=functools.partial(synthetic, num_samples=512),
        scheduler_fn=functools.partial(Cosine, warmup=0.1),
        name="own",
    )
    model = functools.partial(MLP, in_shape=[1, 8, 8], num_classes=10, hidden=(32,))
    optim = functools.partial(torch.optim.AdamW, lr=0.01)
    words = (
        "name=own",
        "~dataset", "+dataset={_target_: flodl.datasets.synthetic.synthetic, num_samples: 512}",
        "~scheduler", "+scheduler={_target_: flodl.decide.schedule.Cosine, warmup: 0.1}",
        "~optim", "+optim={_target_: torch.optim.AdamW, _partial_: true, lr: 0.01}",
        "~model", "+model={_target_: flodl.models.mlp.MLP, in_shape: [1, 8, 8], num_classes: 10, hidden: [32]}",
        "~step", "+step={_target_: flodl.steps.classification.Classification}",
    )  # fmt: skip
    assert same(Trainer.spec(model, optim, Classification, config), typed(*words))


def test_functions_of_a_project_are_named_and_an_eval_set_is_paired_with_them() -> None:
    chain = Trainer.builder(functools.partial(parts.Net, width=4), parts.sgd, parts.step).dataset(
        parts.points, eval=functools.partial(parts.points, seed=1)
    )
    words = (
        "~dataset",
        f"+dataset={{_target_: flodl.datasets.map_style.map_style, train: {POINTS}, eval: {JUDGED}}}",
        "~optim", "+optim={_target_: tests.door.parts.sgd, _partial_: true}",
        "~model", "+model={_target_: tests.door.parts.Net, width: 4}",
        "~step", "+step={_target_: tests.door.parts.step, _partial_: true}",
    )  # fmt: skip
    assert same(chain.spec(), typed(*words))


def test_every_other_block_arrives_too() -> None:
    config = TrainerConfig(
        outer=DiLoCoConfig(lr=0.6), ema=700,
        cluster="rehearsal", guard=MsfGuardConfig(nudge_factor=0.7), meta=False, seed=3, precision="float32",
        stop=StopConfig(max_time="2h"), checkpoint=CheckpointConfig(keep=5), checkpoint_every=4,
        resume_from="ckpts/run42", epoch_callback_policy=EpochCallbackPolicy.rank(1),
        overrides=("optim.lr_scale=linear", "eval=off", "model=mlp"),
    )  # fmt: skip
    words = ("outer=diloco", "outer.lr=0.6", "trainer.ema=700",
             "cluster=rehearsal", "guard=msf", "guard.nudge_factor=0.7", "meta=off", "trainer.seed=3",
             "trainer.precision=float32", "stop.max_time=2h", "checkpoint.keep=5", "checkpoint.every_epochs=4",
             "checkpoint.resume_from=ckpts/run42", "callbacks.policy=1", "optim.lr_scale=linear", "eval=off",
             "model=mlp")  # fmt: skip
    assert same(Trainer.spec("mlp", "sgd", "classification", config), typed(*words))


MODES: dict[str, Callable[[], ElCheConfig]] = {
    "nccl_sync": ElCheConfig.nccl_sync,
    "nccl_cadence": ElCheConfig.nccl_cadence,
    "cpu_sync": ElCheConfig.cpu_sync,
    "cpu_cadence": ElCheConfig.cpu_cadence,
    "cpu_async": ElCheConfig.cpu_async,
}


@pytest.mark.parametrize("mode", MODES)
def test_a_preset_is_the_choice_of_its_name(mode: str) -> None:
    assert MODES[mode]() == typed(f"elche={mode}", "cluster.workers.0.local_devices=all").elche


def test_a_cluster_that_is_built_is_the_file_that_is_written() -> None:
    built = (
        ClusterBuilder()
        .controller("192.168.122.1", port=29400, data_path="/srv/me/data")
        .env({"NCCL_DEBUG": "WARN"})
        .deploy(code="rsync")
        .host("blackwell").ranks([0, 1]).all_devices().nccl_socket_ifname("enp1s0").path("/srv/me/project")
        .arch("sm120").data_path("/srv/me/data").overrides(HostOverrides(batch_size=64))
        .host("pascal").ssh_target("192.168.122.61").ssh_user("me").ssh_identity_file("~/.ssh/id_ed25519")
        .devices(0, 1).ranks([2, 3]).nccl_socket_ifname("eno1").path("/home/me/project").arch("sm61")
        .data_path("/mnt/disk/data").overrides(HostOverrides(batch_size=16))
        .env({"LD_PRELOAD": "/home/me/project/nccl/v2.27.5-sm61/lib/libnccl.so.2"})
        .build()
    )  # fmt: skip
    assert built == typed("cluster=twohost").cluster
    whole = ClusterBuilder.all_local_gpus().build()
    assert whole == typed("cluster.workers.0.local_devices=all").cluster


def test_ranks_that_are_written_must_be_those_that_are_counted() -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterBuilder().host("a").cpu_ranks(2).ranks([0, 2]).host("b").cpu_ranks(1).ranks([1]).build()
    told = str(caught.value)
    assert "cluster.workers[0].ranks=[0, 2]: ranks are counted in the order of the hosts: here [0, 1]" in told
    assert "cluster.workers[1].ranks=[1]: ranks are counted in the order of the hosts: here [2]" in told
    assert "cluster.workers[0].nccl_socket_ifname" in told


def test_what_is_wrong_is_told_at_once_and_with_its_key() -> None:
    config = TrainerConfig(
        dataset="digits", batch_size=0, elche=ElCheConfig.cpu_async(easgd_alpha=2.0), max_grad_norm=-1.0,
        epoch_callback_policy=EpochCallbackPolicy.rank(-1),
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        Trainer.spec("no_such.module.Net", "sgd", "classification", config)
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {"model", "trainer.batch_size", "elche.easgd_alpha", "trainer.max_grad_norm", "callbacks.policy"}


def test_a_path_may_lead_through_a_class_and_one_that_leads_nowhere_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import no_such_package_of_mine\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = Trainer.spec("tests.door.parts.Shop.make", parts.sgd, parts.step, TrainerConfig(dataset=parts.points))
    assert made.model.target == "tests.door.parts.Shop.make"
    for path, why in (
        ("needy.Net", "cannot be imported here: No module named 'no_such_package_of_mine'"),
        ("broken.Net.make", "cannot be imported here: ZeroDivisionError: division by zero"),
        ("tests.door.parts.Shop.sell", "tests.door.parts has no Shop.sell"),
        ("nowhere_at_all.Net", "No module named 'nowhere_at_all'"),
    ):
        with pytest.raises(ConfigError) as caught:
            Trainer.spec(parts.Net, parts.sgd, parts.step, TrainerConfig(dataset=path, eval_dataset=parts.points))
        (problem,) = caught.value.problems
        assert (problem.key, problem.value) == ("dataset.train", path)
        assert why in problem.constraint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("task=eval",), "task: is for the command line"),
        (("launch.detach=true", "hydra.run.dir=x"), "hydra.run.dir: is for the command line"),
        (("trainer.num_epoch=3",), "did you mean trainer.num_epochs?"),
        (("experiment=ab_modes",), "experiment=ab_modes: is a sweep over elche=cpu_sync,"),
        (("guard=trendy",), "guard is one of msf, none, trend"),
    ],
)
def test_words_that_a_program_cannot_say_are_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Trainer.builder("mlp", "sgd", "classification").override(*words).spec()
    assert said in str(caught.value)


def test_trust_that_a_file_brings_is_refused_and_what_the_program_says_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    theirs = tmp_path / "conf" / "experiment" / "theirs.yaml"
    monkeypatch.chdir(tmp_path)
    calls = "# @package _global_\ncallbacks: {eval_fn: {_target_: subprocess.run}}\n"
    theirs.write_text(f"{calls}trusted_targets: [subprocess]\n")
    chain = Trainer.builder("mlp", "sgd", parts.step).override("experiment=theirs")
    with pytest.raises(ConfigError, match="comes from a file, and only the command line may extend trust"):
        chain.spec()
    theirs.write_text(calls)
    with pytest.raises(ConfigError, match="subprocess"):
        chain.spec()
    typed_too = chain.override("trusted_targets=[subprocess]").spec()
    assert typed_too.trusted_targets == ("subprocess", "tests.door.parts.step"), "with what was handed over"
    assert chain.trusted_targets("subprocess").spec().callbacks == typed_too.callbacks


def test_a_folder_that_cannot_be_written_is_told_before_a_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    chain = Trainer.builder("mlp", "sgd", "classification").save_path(tmp_path / "file" / "run")
    with pytest.raises(NotReady, match=r"Not a directory; a run needs a folder to write in: .* save_path"):
        chain.run()
