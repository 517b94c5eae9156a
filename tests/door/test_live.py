"""What has no import path: recognised, told to ranks that are forked, and refused wherever it cannot be."""

from __future__ import annotations

import functools
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from flodl import ClusterBuilder, ConfigError, Trainer, TrainerConfig
from flodl.engine import held
from flodl.engine.trust import Trust, checked
from flodl.record.folder import RunFolder
from flodl.report.onward import how_it_begins_again, how_it_goes_on
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.component import Component
from flodl.spec.job import JobSpec
from tests.door import parts

DATA = TensorDataset(torch.zeros(64, 4))


def spec(config: TrainerConfig, model: Any = parts.Net) -> JobSpec:
    return Trainer.spec(model, parts.sgd, parts.step, config)


def targets(job: JobSpec) -> dict[str, str]:
    return {key: made.target for key, made in job.components.items()}


def test_closures_objects_and_partials_with_live_arguments_are_held_by_key() -> None:
    width = 3
    config = TrainerConfig(dataset=DATA, eval_fn=lambda model: 0.0)
    job = spec(config, lambda: nn.Linear(4, width))
    assert targets(job) | {"step": ""} == {
        "model": "flodl.engine.held.made",
        "dataset": "flodl.engine.held.given",
        "step": "",
        "optim": "tests.door.parts.sgd",
        "scheduler": "flodl.decide.schedule.Cosine",
        "callbacks.eval_fn": "flodl.engine.held.given",
    }
    assert "test_live.py:" in str(job.model.args["words"])
    live = spec(TrainerConfig(dataset=functools.partial(TensorDataset, torch.zeros(2, 4))))
    assert live.dataset.target == "flodl.engine.held.made"
    assert job.model.name == job.model.args["words"]
    assert live.dataset.name == "TensorDataset (of torch.utils.data.dataset)"
    assert Component(target="torch.nn.Linear", args={"words": "mine"}).name == "torch.nn.Linear"


def test_what_is_said_of_live_things_never_reads_like_an_import_path_that_a_rank_would_have_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = types.ModuleType("__main__")  # as a notebook's: no file, and its cells are in none
    cell = "from torch import nn\nclass Net(nn.Identity): ...\ndef step(model, batch): ..."
    exec(compile(cell, "/tmp/ipykernel_1/2.py", "exec"), vars(kernel))
    monkeypatch.setitem(sys.modules, "__main__", kernel)
    for root in ("dataset", "callbacks"):  # installed by somebody: PyPI has packages of such names
        monkeypatch.setitem(sys.modules, root, types.SimpleNamespace(train=len, eval=len, eval_fn=len))
    config = TrainerConfig(dataset=parts.points, eval_dataset=DATA, eval_fn=lambda model: 0.0)
    job = Trainer.spec(kernel.Net, parts.sgd, kernel.step, config)
    assert (job.model.name, job.step.name) == ("Net (of __main__)", "step (typed in:3)")
    live = {key: made for key, made in job.components.items() if made.is_live}
    assert {*checked(live, Trust())} == {"model", "step", "dataset", "callbacks.eval_fn"}


def test_how_an_interrupted_run_goes_on_or_begins_again_is_said_in_what_works_for_it(tmp_path: Path) -> None:
    there = Path("/runs/it's mine")
    live = spec(TrainerConfig(dataset=parts.points, eval_dataset=DATA), lambda: nn.Linear(4, 2))
    told = how_it_goes_on(live, there)
    assert told.startswith('to go on, run the program again with resume_from="/runs/it\'s mine" in its TrainerConfig')
    assert "its model, dataset live in it alone" in told
    named = spec(TrainerConfig(dataset=parts.points))
    assert how_it_goes_on(named, Path("/runs/a")) == "python -m flodl task=resume run=/runs/a"
    epochs = named.trainer.num_epochs
    assert how_it_goes_on(named, Path("/runs/a"), epochs - 1) == how_it_goes_on(named, Path("/runs/a"))
    assert f"all {epochs} epochs are done" in how_it_goes_on(named, Path("/runs/a"), epochs)
    trusted = spec(TrainerConfig(dataset=pytest.deprecated_call, trusted_targets=("b.c",)))
    words = shlex.split(how_it_goes_on(trusted, there))
    assert words == ["python", "-m", "flodl", "task=resume", r"run='/runs/it\'s mine'",
                     f"trusted_targets=[b.c,{trusted.dataset.target}]"]  # fmt: skip
    for number, (job, again) in enumerate(((live, "run its program"), (named, "task=rerun spec="), (trusted, "[b.c,"))):
        folder = RunFolder.adopt(tmp_path / f"{number}")
        folder.write_spec(canonical_json(job), sha256(job))
        assert again in how_it_begins_again(folder)


def test_a_second_host_a_container_and_an_interpreter_are_refused_all_at_once_with_the_remedy() -> None:
    local = ClusterBuilder().host("localhost").cpu_ranks(1)
    for builder, why in (
        (local.nccl_socket_ifname("lo").host("127.0.0.2").cpu_ranks(1).nccl_socket_ifname("lo"), "a host of its own"),
        (ClusterBuilder().host("node-a").cpu_ranks(1), "node-a is another machine"),
        (local.docker("trainer"), "localhost has its own docker: trainer"),
        (local.python("/usr/bin/python3"), "localhost has its own python: /usr/bin/python3"),
    ):
        with pytest.raises(ConfigError) as caught:
            spec(TrainerConfig(dataset=DATA, cluster=builder.build()), lambda: nn.Linear(4, 2))
        assert [problem.key for problem in caught.value.problems] == ["model", "dataset"]
        assert why in str(caught.value)
        assert "make it a class or a top-level function of a file in the working folder" in str(caught.value)


def test_a_program_that_has_initialised_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="it has initialised CUDA, which does not survive a fork"):
        spec(TrainerConfig(dataset=DATA))
    spec(TrainerConfig(dataset=parts.points))


def test_what_is_held_is_found_by_its_key_alone() -> None:
    held.hold({"model": lambda: "made", "step": len})
    assert held.made(key="model") == "made"
    assert held.given(key="step")("four") == 4
    with pytest.raises(ConfigError, match=r"dataset\.train=an object: lived .* run the program again"):
        held.given(key="dataset/train", words="an object")
    held.hold({})


def test_a_callable_from_outside_the_project_is_trusted_because_the_program_has_it(tmp_path: Path) -> None:
    job = spec(TrainerConfig(dataset=parts.points, overrides=("model=mlp",)), nn.Identity)
    assert (job.model, job.trusted_targets) == (Component(target="torch.nn.Identity"), ())
    outside = spec(TrainerConfig(dataset=pytest.deprecated_call))
    assert outside.trusted_targets == (outside.dataset.target,)
