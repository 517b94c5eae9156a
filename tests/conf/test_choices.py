"""Every choice of every group composes and decodes, says what its keys mean, and agrees with the values in code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from flodl.errors import ConfigError
from flodl.spec.checks import ineffective
from flodl.spec.codec import job_to_plain
from flodl.spec.elche import MODES, ElCheConfig
from flodl.spec.guard import MsfGuardConfig, NoGuardConfig, TrendGuardConfig
from flodl.spec.job import JobSpec
from flodl.spec.outer import DiLoCoConfig, SlowMoConfig
from flodl.tasks import TASKS
from tests.conf.composing import CONF, job

pytestmark = pytest.mark.usefixtures("composing")

GROUPS = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name != "hydra")
CHOICES = [(path.parent.name, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
FILES = sorted(CONF.rglob("*.yaml"))
KEY = re.compile(r"^\s*(?:- )?(?P<key>[\w.]+):(?P<rest>.*)$")
EXPLAINED_ABOVE = {"_target_", "name", "mode", "task", "defaults", "help", "template", "app_name"}


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(CONF)) for path in paths]


# What a choice cannot be without: text needs a model of text, and the other way round.
COMPANIONS = {
    ("task", "rerun"): ["spec=spec.json"],
    ("task", "exec"): ["command=hostname"],
    ("task", "init"): ["hosts=[localhost]"],
    ("dataset", "python_stdlib"): ["model=gpt_nano", "step=language_model"],
    ("model", "gpt_nano"): ["dataset=python_stdlib", "step=language_model"],
    ("model", "char_rnn"): ["dataset=python_stdlib", "step=language_model"],
}


@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes_and_decodes(group: str, choice: str) -> None:
    assert isinstance(job([f"{group}={choice}", *COMPANIONS.get((group, choice), [])]), JobSpec)


def test_a_model_that_does_not_fit_the_data_set_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"model.in_shape: .*'dataset.image_shape' not found.* choose a model that"):
        job(["dataset=python_stdlib", "model=lenet"])


def test_the_shipped_choices_are_the_promised_ones() -> None:
    found = {group: {choice for of, choice in CHOICES if of == group} for group in GROUPS}
    assert found["elche"] == {"auto", *MODES}
    assert found["cluster"] == {"local", "rehearsal", "rehearsal4", "twohost"}
    assert found["model"] == {"logistic", "mlp", "lenet", "resnet20", "conv_autoencoder", "char_rnn", "gpt_nano",
                              "none"}  # fmt: skip
    assert found["dataset"] == {"digits", "fashion_mnist", "mnist", "cifar10", "python_stdlib", "synthetic"}
    assert found["step"] == {"classification", "language_model", "reconstruction"}
    assert found["optim"] == {"sgd", "adam", "adamw"}
    assert found["scheduler"] == {"constant", "cosine", "linear", "multistep", "one_cycle", "step"}
    assert found["guard"] == {"none", "trend", "msf"}
    assert found["meta"] == {"on", "off"}
    assert found["outer"] == {"average", "slowmo", "diloco"}
    assert found["debug"] == {"off", "smoke", "overfit", "inprocess"}
    assert found["task"] == set(TASKS)


def test_the_defaults_list_is_the_documented_one() -> None:
    listed: dict[str, str] = {}
    for entry in yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]:
        listed |= entry if isinstance(entry, dict) else {}
    wanted = ("task=train elche=auto cluster=local model=resnet20 dataset=digits step=classification optim=sgd "
              "scheduler=cosine guard=trend meta=on outer=average")  # fmt: skip
    assert listed | dict(pair.split("=") for pair in wanted.split()) == listed


@pytest.mark.parametrize("mode", ["auto", *MODES])
def test_an_elche_choice_is_the_preset_of_its_mode(mode: str) -> None:
    cluster = ["cluster.workers.0.local_devices=all"]
    assert job([f"elche={mode}", *cluster]).elche == ElCheConfig(mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choice", "value"), [("none", NoGuardConfig()), ("trend", TrendGuardConfig()), ("msf", MsfGuardConfig())]
)
def test_a_guard_choice_is_the_default_of_its_kind(choice: str, value: object) -> None:
    assert job([f"guard={choice}"]).guard == value


@pytest.mark.parametrize(("choice", "value"), [("slowmo", SlowMoConfig()), ("diloco", DiLoCoConfig())])
def test_an_outer_choice_is_the_default_of_its_kind(choice: str, value: object) -> None:
    assert job([f"outer={choice}"]).outer == value


def test_what_conf_says_by_default_is_what_the_values_say_by_default() -> None:
    made = job()
    bare = JobSpec(elche=made.elche, cluster=made.cluster, model=made.model, dataset=made.dataset, step=made.step,
                   optim=made.optim, scheduler=made.scheduler)  # fmt: skip
    assert made == bare


def test_no_shipped_choice_sets_what_its_mode_ignores() -> None:
    for group, choice in CHOICES:
        extra = COMPANIONS.get((group, choice), [])
        found = [str(p) for p in ineffective(job([f"{group}={choice}", *extra]))]
        assert found == [], (group, choice)


def test_the_quickstart_is_the_main_job() -> None:
    made = job(["experiment=quickstart"])
    assert made.elche == ElCheConfig(mode="cpu_async")
    assert made.cluster.workers[0].local_devices == "cpu:2"
    assert made.cluster.workers[0].speed == (1.0, 0.4)
    assert made.model.target == "flodl.models.resnet.ResNet"
    assert made.dataset.target == "flodl.datasets.digits.digits"


@pytest.mark.parametrize("name", ["ab_modes", "ab_alpha", "ab_outer", "ab_guards"])
def test_the_arms_of_a_comparison_differ_in_what_is_compared_and_in_nothing_else(name: str) -> None:
    hydra = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text())["hydra"]
    assert hydra.keys() == {"sweeper"}, "hydra.mode in an experiment is an error of Hydra 1.4"
    ((key, values),) = hydra["sweeper"]["params"].items()
    arms = {value: [f"experiment={name}", "cluster=rehearsal", f"{key}={value}"] for value in values.split(",")}
    for value in [value for value in arms if value.startswith("nccl")]:
        with pytest.raises(ConfigError) as caught:
            job(arms.pop(value))
        assert caught.value.is_rigs, "skipped on a rig without GPUs"
    made = [job_to_plain(job(words)) for words in arms.values()]
    group = key.partition(".")[0]
    assert len({repr(plain[group]) for plain in made}) == len(made) >= 3
    assert len({repr({k: v for k, v in plain.items() if k != group}) for plain in made}) == 1


def test_an_experiment_can_be_overridden() -> None:
    assert job(["experiment=quickstart", "elche=cpu_sync"]).elche.mode == "cpu_sync"
    assert job(["experiment=quickstart", "trainer.num_epochs=2"]).trainer.num_epochs == 2


def test_the_model_fits_the_data_set_that_is_chosen() -> None:
    made = job(["dataset.image_shape=[3, 32, 32]", "dataset.num_classes=100"])
    assert made.model.args["in_shape"] == [3, 32, 32]
    assert made.model.args["num_classes"] == 100


def test_two_hosts_of_nccl_need_no_cpu_rank() -> None:
    assert job(["cluster=twohost", "elche=nccl_cadence"]).elche.mode == "nccl_cadence"
    with pytest.raises(ConfigError, match="use elche=cpu_cadence, or lend GPUs"):
        job(["cluster=rehearsal", "elche=nccl_cadence"])


@pytest.mark.parametrize("path", FILES, ids=ids(FILES))
def test_every_file_begins_by_saying_what_it_is(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    assert re.match(r"# \w", lines[0])


@pytest.mark.parametrize("path", FILES, ids=ids(FILES))
def test_every_key_says_its_meaning(path: Path) -> None:
    text = path.read_text().partition("template: |")[0]
    if path.parent.name == "cluster" and path.stem != "local":
        pytest.skip("its keys are explained in local.yaml")
    mute = [
        match["key"]
        for line in text.splitlines()
        if (match := KEY.match(line)) and match["key"] not in EXPLAINED_ABOVE
        and "#" not in match["rest"] and match["rest"].strip()
    ]  # fmt: skip
    assert mute == []
