"""Weights go from a file into a model, or a sentence says what is different; a run's model is there to be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import nn

import flodl
from flodl.engine.build import build
from flodl.engine.judging import judge
from flodl.engine.pretrained import load_weights
from flodl.engine.surroundings import Surroundings
from flodl.errors import ConfigError, FlodlError, NotReady
from flodl.models.mlp import MLP
from flodl.record.folder import RunFolder
from flodl.spec.cluster import ClusterSpec, HostSpec
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import CallbacksConfig, EvalConfig, JobSpec

SIZES = {"in_shape": [1, 8, 8], "num_classes": 10}
JOB = JobSpec(
    elche=ElCheConfig(),
    cluster=ClusterSpec(workers=(HostSpec(host="localhost"),)),
    model=Component(target="flodl.models.mlp.MLP", args={**SIZES, "init_from": None}),
    dataset=Component(target="flodl.datasets.digits.digits"),
    step=Component(target="flodl.steps.classification.Classification"),
    optim=Component(target="torch.optim.SGD", args={"lr": 0.1}, partial=True),
    scheduler=Component(target="flodl.decide.schedule.Constant"),
)


def net(outputs: int = 10) -> nn.Module:
    return MLP(in_shape=(1, 8, 8), num_classes=outputs)


def equal(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """The weights of a net, in a folder whose name hurts."""
    path = tmp_path / "Bob's größte nets" / "best.safetensors"
    path.parent.mkdir()
    save_file(net().state_dict(), path)
    return path


# ------------------------------------------------------------------------------------------------------- init_from


def beginning_from(file: str, **place: str) -> nn.Module:
    model = JOB.model.replace(args={**SIZES, "init_from": file})
    return build(JOB.replace(model=model), Surroundings(device=torch.device("cpu"), host="node-a", **place)).model


def test_a_model_begins_with_the_weights_of_the_file_and_else_with_its_own(weights: Path) -> None:
    wanted = load_file(weights)
    assert all(torch.equal(value, wanted[name]) for name, value in beginning_from(str(weights)).state_dict().items())
    bare = build(JOB, Surroundings(device=torch.device("cpu"))).model.state_dict()
    assert not torch.equal(bare["layers.1.weight"], wanted["layers.1.weight"])


def test_the_file_is_looked_for_in_the_project_folder_and_under_the_hosts_data(weights: Path, tmp_path: Path) -> None:
    wanted = load_file(weights)["layers.1.weight"]
    inside = beginning_from(f"{weights.parent.name}/{weights.name}", path=str(tmp_path))
    under_data = beginning_from(f"@data/{weights.name}", data_path=str(weights.parent))
    assert torch.equal(inside.get_parameter("layers.1.weight"), wanted)
    assert torch.equal(under_data.get_parameter("layers.1.weight"), wanted)


def test_a_missing_file_is_told_with_host_path_and_way_out(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as caught:
        beginning_from("none.safetensors", path=str(tmp_path))
    assert str(caught.value) == (
        f"model.init_from=none.safetensors: no such file on host node-a: looked for {tmp_path}/none.safetensors; "
        "put it there, in the project folder or under @data; deploy.code=rsync brings it along"
    )


# ----------------------------------------------------------------------------------------------------- differences


def refusal(model: nn.Module, path: Path) -> str:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ConfigError) as caught:
        load_weights(model, path, "model.init_from")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return (
        str(caught.value)
        .removeprefix(f"model.init_from={path}: ")
        .removesuffix("; the file has to be of this very model")
    )


def test_the_first_difference_is_named(weights: Path) -> None:
    assert refusal(net(outputs=7), weights) == "has layers.7.weight as (10, 128) float32, the model as (7, 128) float32"
    more = nn.ModuleDict({"layers": net().get_submodule("layers"), "head": nn.Linear(2, 2)})
    assert refusal(more, weights) == "lacks head.weight, which the model has as (2, 2) float32"
    less = nn.ModuleDict({"layers": net().get_submodule("layers")[:3]})
    assert refusal(less, weights) == "has layers.4.bias, which the model does not have"


def test_whole_numbers_are_no_floats(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2, 2, dtype=torch.int64), "bias": torch.ones(2)}, tmp_path / "w.safetensors")
    text = refusal(nn.Linear(2, 2), tmp_path / "w.safetensors")
    assert text == "has weight as (2, 2) int64, the model as (2, 2) float32"


def test_another_precision_is_fine(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    save_file({"weight": torch.ones(2, 2, dtype=torch.float16), "bias": torch.ones(2)}, tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors", "key")
    assert model.weight.dtype == torch.float32
    assert model.weight.tolist() == [[1, 1], [1, 1]]


def test_of_tied_weights_one_name_is_enough(tmp_path: Path) -> None:
    first, second = (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}) for _ in range(2))
    for model in (first, second):
        model["b"].weight = model["a"].weight
    save_model(first, str(tmp_path / "w.safetensors"))
    assert len(load_file(tmp_path / "w.safetensors")) == 3
    load_weights(second, tmp_path / "w.safetensors", "key")
    assert equal(first, second)
    assert second["b"].weight is second["a"].weight


def test_a_compiled_model_and_a_bare_one_exchange_weights(tmp_path: Path) -> None:
    bare, inner = nn.Linear(2, 2), nn.Linear(2, 2)
    compiled = torch.compile(inner, backend="eager")
    path = tmp_path / "w.safetensors"
    save_file(inner.state_dict(), path)
    load_weights(bare, path, "key")
    assert equal(bare, inner)
    save_file(nn.Linear(2, 2).state_dict(), path)
    load_weights(compiled, path, "key")  # pyright: ignore[reportArgumentType]
    assert not equal(bare, inner)


@pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"\xff" * 64], ids=["empty", "a pickle", "a huge header"])
def test_what_is_no_safetensors_file_is_refused_and_never_unpickled(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    assert refusal(net(), tmp_path / "w.safetensors").startswith("is not a whole safetensors file: ")


# ------------------------------------------------------------------------------------------------------ load_model


@pytest.fixture
def run(runs: Path, weights: Path) -> RunFolder:
    """The folder of a run that has ended."""
    folder = RunFolder.create(runs)
    folder.write_spec(canonical_json(JOB), sha256(JOB))
    with folder.weights() as file:
        file.write(weights.read_bytes())
    return folder


def test_the_model_of_a_run_is_there_with_its_weights_ready_to_be_used(run: RunFolder, weights: Path) -> None:
    for named in (run.path, str(run.path), run.checkpoints_path):
        model = flodl.load_model(named)
        assert isinstance(model, MLP)
        assert not model.training
        wanted = load_file(weights)
        assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())


def test_the_last_run_is_the_newest_under_outputs(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path.parent)
    run.path.parent.joinpath("outputs").symlink_to(run.path.parent)
    assert isinstance(flodl.load_model("last"), MLP)


def test_a_run_without_weights_and_a_folder_without_a_run_are_told(run: RunFolder, tmp_path: Path) -> None:
    run.weights_path.unlink()
    with pytest.raises(ConfigError, match="has saved no weights; a run saves them at its end"):
        flodl.load_model(run.path)
    with pytest.raises(ConfigError, match=r"name the spec\.json of a run folder"):
        flodl.load_model(tmp_path)


def test_a_run_of_a_class_that_may_not_be_called_is_refused(runs: Path) -> None:
    job = JOB.replace(model=Component(target="os.system", args={"command": "touch canary"}))
    folder = RunFolder.create(runs)
    folder.write_spec(canonical_json(job), sha256(job))
    with pytest.raises(FlodlError, match=r"model\._target_=os\.system: lies outside the packages"):
        flodl.load_model(folder.path)


def test_a_users_own_class_is_found_in_the_folder_that_one_works_in(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from flodl.models.mlp import MLP\n\n\nclass Mine(MLP):\n    pass\n")
    job = JOB.replace(model=JOB.model.replace(target="mine.Mine"))
    run.spec_path.unlink()
    run.write_spec(canonical_json(job), sha256(job))
    code = f"import flodl; print(type(flodl.load_model({str(run.path)!r})).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(flodl.__file__).parents[1])},
    )  # fmt: skip
    assert done.stdout.strip() == "Mine", done.stderr


# ------------------------------------------------------------------------------------------------------- task=eval


def test_weights_are_judged_by_the_jobs_own_function_where_it_has_one(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judges_of_mine.py").write_text(
        "def own(model):\n    return {'width': model.layers[1].weight.shape[0], 'nan': float('nan')}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    figures, samples = judge(JOB.replace(eval=EvalConfig(metrics=("loss",))), weights, tmp_path)
    assert (figures.keys(), samples) == ({"loss"}, 300)
    own = CallbacksConfig(eval_fn=Component(target="judges_of_mine.own", partial=True))
    job = JOB.replace(callbacks=own, eval=EvalConfig(metrics=("width",)))
    assert judge(job, weights, tmp_path) == ({"width": float(load_file(weights)["layers.1.weight"].shape[0])}, None)
