"""What a program hands in is looked at before anything is made of it: all that is wrong is told at once, in words."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import flodl
from flodl import (
    ClusterBuilder,
    ConfigError,
    ElCheConfig,
    EpochCallbackPolicy,
    StopConfig,
    TrainedState,
    Trainer,
    TrainerConfig,
)
from flodl.decide.schedule import Cosine
from flodl.door.builder import Factories, TrainerBuilder
from flodl.door.trainer import _Start
from flodl.engine.build import build_data
from flodl.engine.surroundings import Surroundings
from flodl.spec.codec import canonical_json
from flodl.spec.job import JobSpec
from tests.door import parts


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


class Summing:
    def __init__(self, *, scale: float) -> None:
        self.scale = scale

    def __call__(self, model: nn.Module, batch: Any) -> None: ...


def told(*handed: Any, **fields: Any) -> dict[str, str]:
    """Key -> what is wrong with it and what to do; fields: of the config."""
    model, optim, step = handed or (parts.Net, parts.sgd, parts.step)
    with pytest.raises(ConfigError) as caught:
        Trainer.spec(model, optim, step, TrainerConfig(**{"dataset": parts.points, **fields}))
    return {problem.key: f"{problem.constraint}; {problem.remedy}" for problem in caught.value.problems}


def adam() -> torch.optim.Optimizer:
    return torch.optim.Adam(parts.Net().parameters())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("elche", "cpu_async", "is a str; give ElCheConfig.cpu_async()"),
        ("elche", ElCheConfig, "is the class ElCheConfig; give ElCheConfig.cpu_async()"),
        ("elche", StopConfig(), "is a StopConfig; give ElCheConfig.cpu_async()"),
        ("cluster", ClusterBuilder().host("localhost"), "is a ClusterBuilder; end it with .build()"),
        ("guard", "msf", "is a str; give a TrendGuardConfig"),
        ("outer", {}, "is a dict; give an AverageConfig"),
        ("stop", 5, "is an int; give a StopConfig"),
        ("epoch_callback_policy", EpochCallbackPolicy.rank(cast("Any", None)), "names no rank"),
        ("epoch_callback_policy", "fastest", "is a str; give EpochCallbackPolicy.fastest()"),
        ("save_path", 3, "is an int; give a folder's path"),
        ("save_path", "", "is empty; leave it out"),
        ("overrides", "trainer.seed=3", "must be a list of texts; write overrides=('trainer.seed=3',)"),
        ("trusted_targets", ["a", 1], "must be a list of texts"),
        ("batch_size", torch.tensor(8), "is a Tensor, not plain data"),
        ("metrics_fn", "mine.plot", "cannot be called; give a function of this program, called as (metrics)"),
        ("eval_result_fn", parts.points, "is called with (epoch, figures): too many positional arguments"),
    ],
)
def test_a_field_that_holds_another_kind_is_told_and_never_left_out(field: str, value: Any, said: str) -> None:
    assert told(**{field: value})[field].startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataLoader(parts.points()), "is a loader, and batches are made by the ranks; give its data set"),
        (Stream(), "is no map-style data set"),
        (3, "is no map-style data set"),
        ({"train": [1], "eval": [2]}, "is no map-style data set"),
        (Summing, "is called with (): missing a required"),
    ],
)
def test_what_cannot_be_dealt_out_is_no_data_set(data: Any, said: str) -> None:
    assert told(dataset=data)["dataset"].startswith(said)


def test_what_is_no_factory_or_cannot_be_called_so_is_told_for_all_of_them_at_once() -> None:
    found = told(parts.Net(), adam(), None, scheduler_fn=torch.optim.lr_scheduler.StepLR, epoch_fn=3, batch_size=0,
                 eval_fn=parts.step, elche="cpu_async")  # fmt: skip
    assert found["model"] == "is a model, and each rank makes its own; give what makes it: its class, or lambda: model"
    assert found["optim"].startswith("cannot be called; give a class or function that makes the optimizer")
    assert found["step"].startswith("is missing; give a function")
    assert found["scheduler"].startswith("is called with (optimizer): missing a required argument: 'step_size'")
    assert found["callbacks.eval_fn"].startswith("is called with (model): missing a required argument: 'batch'")
    assert {*found} == {"model", "optim", "step", "scheduler", "callbacks.eval_fn", "callbacks.epoch_fn", "elche",
                        "trainer.batch_size"}  # fmt: skip
    found = told(parts.step, parts.points, Summing)
    assert found["model"].startswith("is called with (): missing a required argument: 'model'")
    assert found["optim"].startswith("is called with (parameters): too many positional arguments")
    assert found["step"].startswith("is called with (): missing a required argument: 'scale'")
    rate = torch.optim.lr_scheduler.ConstantLR(adam())
    assert told(scheduler_fn=rate)["scheduler"].startswith("belongs to an optimizer of this program; give what makes")


def test_a_config_and_a_loop_that_are_none_are_told_too() -> None:
    with pytest.raises(ConfigError, match=r"config=None: is no TrainerConfig; write TrainerConfig\("):
        Trainer.spec(parts.Net, parts.sgd, parts.step, cast("Any", None))
    with pytest.raises(ConfigError, match="loop=None: is missing; give a function that trains"):
        Trainer.run_loop(cast("Any", None), TrainerConfig())


@pytest.mark.parametrize("model", [parts.Net, "tests.door.parts.Net", functools.partial(parts.Net, width=3), lambda: 0])
def test_an_own_model_without_data_is_refused_whoever_names_it_and_a_shipped_one_has_its_own(model: Any) -> None:
    bare, say = TrainerConfig(), "is missing: the model is one of your own"
    assert told(model, parts.sgd, parts.step, dataset=None)["dataset"].startswith(say)
    assert told(model, parts.sgd, parts.step, dataset=None, overrides=("trainer.seed=3", "~experiment"))[
        "dataset"
    ].startswith(say)
    words = ("dataset=digits", "dataset.num_eval=99", "dataset=synthetic", "experiment=quickstart",
             "+experiment@_global_=quickstart", "+dataset@dataset.held_out=digits")  # fmt: skip
    for said in (TrainerConfig(dataset="digits"), *(TrainerConfig(overrides=(word,)) for word in words)):
        assert Trainer.spec(model, parts.sgd, parts.step, said).dataset.target.startswith("flodl.datasets.")
    assert Trainer.spec("mlp", parts.sgd, parts.step, bare).dataset.target == "flodl.datasets.digits.digits"


def test_a_loop_without_data_hears_that_there_are_none_where_it_asks_for_them() -> None:
    def loop(config: TrainerConfig) -> JobSpec:
        return TrainerBuilder(Factories({"loop": parts.lonely}), _Start(), config).spec()

    assert loop(TrainerConfig(dataset="digits")).dataset.target == "flodl.datasets.digits.digits"
    with pytest.raises(ConfigError, match=r"dataset: is missing, and the loop asks for ctx.loader; give .*\(dataset="):
        build_data(loop(TrainerConfig()), Surroundings(device=torch.device("cpu")))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (3, "run=3: is an int; give a run folder's path"),
        (None, "run=None: is a NoneType; give"),
        (b"x", "is a bytes; give"),
        (TrainedState(params={}, buffers={}, folder=Path("a")), "is a TrainedState; give its folder: run.folder"),
    ],
)
def test_a_model_is_loaded_of_a_folder_and_anything_else_is_told(run: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flodl.load_model(run, trusted_targets="mine")
    assert said in str(caught.value)
    assert "trusted_targets='mine': must be a list of texts; write trusted_targets=('mine',)" in str(caught.value)


def test_what_fits_passes_and_numbers_of_numpy_are_numbers() -> None:
    np = pytest.importorskip("numpy")
    config = TrainerConfig(dataset=parts.points, batch_size=16, max_grad_norm=0.5, scheduler_fn=Cosine(warmup=0.1))
    same = config.replace(
        batch_size=np.int64(16), max_grad_norm=np.float32(0.5), scheduler_fn=functools.partial(Cosine, warmup=0.1)
    )
    step = functools.partial(Summing, scale=2.0)
    specs = {canonical_json(Trainer.spec(parts.Net, parts.sgd, step, each)) for each in (config, same)}
    assert len(specs) == 1
    live = Trainer.spec(lambda: parts.Net(width=4), lambda params: adam(), lambda model, batch: None, TrainerConfig(
        dataset=[1, 2], scheduler_fn=lambda optimizer: None))  # fmt: skip
    assert live.model.args["words"].startswith("test_what_fits_passes")


def test_a_cluster_builder_tells_what_it_was_given() -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterBuilder().host("a").cpu_ranks(1).ranks(cast("Any", 3)).env(cast("Any", "A=b")).build()
    assert [problem.key for problem in caught.value.problems] == ["cluster.workers[0].env", "cluster.workers[0].ranks"]
