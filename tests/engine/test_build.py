"""A rank's parts come out of the spec, or a sentence says which key is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.engine.build import build
from flodl.engine.surroundings import Surroundings
from flodl.errors import ConfigError, NotReady
from flodl.spec.cluster import ClusterSpec, HostOverrides, HostSpec
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import JobSpec, TrainerConfig
from flodl.steps.classification import Classification

JOB = JobSpec(
    elche=ElCheConfig(),
    cluster=ClusterSpec(workers=(HostSpec(host="localhost"),)),
    model=Component(target="flodl.models.mlp.MLP", args={"in_shape": [1, 8, 8], "num_classes": 10}),
    dataset=Component(target="flodl.datasets.digits.digits"),
    step=Component(target="flodl.steps.classification.Classification", args={"label_smoothing": 0.1}),
    optim=Component(target="torch.optim.SGD", args={"lr": 0.1, "momentum": 0.9}, partial=True),
    scheduler=Component(target="flodl.decide.schedule.Cosine", args={"warmup": 0.05}),
)
HERE = Surroundings(device=torch.device("cpu"), host="node-a")


def changed(part: str, target: str, **args: Any) -> JobSpec:
    return JOB.replace(**{part: Component(target=target, args=args)})


def refusal(job: JobSpec, place: Surroundings = HERE, error: type[Exception] = ConfigError) -> str:
    with pytest.raises(error) as caught:
        build(job, place)
    return str(caught.value)


def test_a_job_becomes_model_optimizer_schedule_step_and_data() -> None:
    built = build(JOB, HERE)
    assert isinstance(built.optimizer, torch.optim.SGD)
    assert isinstance(built.step, Classification)
    assert built.step.label_smoothing == 0.1
    assert built.schedule(1.0) == pytest.approx(0.0)
    assert (built.num_samples, len(built.eval), built.batch_size) == (1497, 300, 64)
    assert built.num_parameters == 64 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10
    assert [group["initial_lr"] for group in built.optimizer.param_groups] == [0.1]


def test_every_rank_builds_the_same_model_from_the_seed_whatever_was_random_before() -> None:
    first = build(JOB, HERE).model.state_dict()
    torch.manual_seed(99)
    second = build(changed("dataset", "flodl.datasets.synthetic.synthetic", num_samples=100), HERE).model.state_dict()
    other = build(JOB.replace(trainer=TrainerConfig(seed=1)), HERE).model.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.1.weight"], other["layers.1.weight"])


def test_nested_components_are_built_first_and_lists_are_lists() -> None:
    layers = [{"_target_": "torch.nn.Flatten"}, {"_target_": "torch.nn.Linear", "in_features": 64, "out_features": 10}]
    model = build(changed("model", "torch.nn.Sequential", _args_=layers), HERE).model
    assert [type(layer).__name__ for layer in model.children()] == ["Flatten", "Linear"]


def test_frozen_parameters_are_not_given_to_the_optimizer(project: Path) -> None:
    (project / "half.py").write_text(
        "from torch import nn\n"
        "class Half(nn.Sequential):\n"
        "    def __init__(self, frozen):\n"
        "        super().__init__(nn.Linear(64, 4), nn.Linear(4, 10))\n"
        "        for layer in list(self)[:frozen]: layer.requires_grad_(False)\n"
    )
    place = Surroundings(device=torch.device("cpu"), path=str(project))
    built = build(changed("model", "half.Half", frozen=1), place)
    assert sum(len(group["params"]) for group in built.optimizer.param_groups) == 2
    assert built.num_parameters == 4 * 10 + 10
    assert "model._target_=half.Half: all parameters of the model are frozen" in refusal(
        changed("model", "half.Half", frozen=2), place
    )


def test_targets_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    job = changed("dataset", "flodl.datasets.digits.digits", file=str(tmp_path / "none.npz"))
    text = refusal(job.replace(model=Component(target="os.system"), optim=Component(target="torch.hub.load")))
    assert "model._target_=os.system" in text
    assert "optim._target_=torch.hub.load" in text


def test_the_object_that_was_checked_is_the_one_that_is_called(project: Path) -> None:
    # The module swaps its own name for another function once it has been looked at: names cannot be trusted twice.
    (project / "turncoat.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(64, 10)\n"
        "Good = Net\n"
        "seen = []\n"
        "def __getattr__(name):\n"
        "    seen.append(name)\n"
        "    if name == 'Shifty': return Good if seen.count('Shifty') == 1 else __import__('os').getcwd\n"
        "    raise AttributeError(name)\n"
    )
    model = build(
        changed("model", "turncoat.Shifty"), Surroundings(device=torch.device("cpu"), path=str(project))
    ).model
    assert type(model).__name__ == "Net"


def test_a_misspelt_argument_is_told_with_its_key_and_the_right_one() -> None:
    assert refusal(changed("optim", "torch.optim.SGD", lr=0.1, momentun=0.9)) == (
        "optim.momentun: is no argument of optim._target_; did you mean momentum?"
    )


def test_a_missing_argument_is_told_with_what_there_is() -> None:
    text = refusal(changed("model", "flodl.models.mlp.MLP", in_shape=[1, 8, 8]))
    assert "missing a required argument: 'num_classes'" in text
    assert "it takes in_shape, num_classes, hidden, dropout" in text


def test_a_wrong_value_is_told_with_the_component_that_refuses_it() -> None:
    assert refusal(changed("optim", "torch.optim.SGD", lr=-1)) == "optim.lr=-1: must be a number >= 0"
    assert "optim=torch.optim.sgd.SGD: cannot be built: ValueError: Nesterov momentum requires" in refusal(
        changed("optim", "torch.optim.SGD", lr=0.1, nesterov=True)
    )
    assert "depth=21 must be 6n + 2" in refusal(
        changed("model", "flodl.models.resnet.ResNet", in_shape=[1, 8, 8], num_classes=10, depth=21)
    )
    assert "scheduler.warmup=2.0: is a fraction" in refusal(
        changed("scheduler", "flodl.decide.schedule.Cosine", warmup=2.0)
    )


def test_arguments_that_do_not_fit_the_data_are_told() -> None:
    text = refusal(changed("dataset", "flodl.datasets.digits.digits", num_classes=100))
    assert text == "dataset.num_classes=100: the data has 10; set it to 10"


def test_a_model_without_parameters_is_refused() -> None:
    text = refusal(changed("model", "torch.nn.Flatten"))
    assert "model._target_=torch.nn.Flatten: the model has no parameters: there is nothing to train" in text


def test_something_that_is_no_model_is_refused() -> None:
    text = refusal(changed("model", "flodl.steps.classification.Classification"))
    assert "gives a Classification, not a torch.nn.Module" in text


@pytest.mark.row(25)
def test_an_empty_data_set_is_refused_with_its_host() -> None:
    text = refusal(changed("dataset", "flodl.datasets.synthetic.synthetic", num_samples=0), error=NotReady)
    assert text == "dataset=flodl.datasets.synthetic.synthetic: its train set is empty on host node-a"


def test_fewer_samples_than_one_batch_are_refused_with_the_key_that_asks_for_them() -> None:
    few = changed("dataset", "flodl.datasets.synthetic.synthetic", num_samples=40)
    assert refusal(few) == (
        "trainer.batch_size=64: the training set has 40 samples on host node-a, fewer than one batch; "
        "set it to 40 or less"
    )
    here = Surroundings(device=torch.device("cpu"), host="node-a", overrides=HostOverrides(batch_size=50))
    assert "cluster.workers[node-a].overrides.batch_size=50: the training set has 40 samples" in refusal(few, here)
    assert build(few, Surroundings(device=torch.device("cpu"), overrides=HostOverrides(batch_size=8))).batch_size == 8


def test_a_missing_file_is_told_with_its_path_its_key_and_where_the_path_comes_from(tmp_path: Path) -> None:
    job = changed("dataset", "flodl.datasets.digits.digits", file="@data/none.npz")
    place = Surroundings(device=torch.device("cpu"), host="node-a", data_path=str(tmp_path))
    assert refusal(job, place, NotReady) == (
        f"dataset.file=@data/none.npz: no such file on host node-a: looked for {tmp_path}/none.npz; "
        f"@data is {tmp_path} (data_path of this host in the cluster file)"
    )
    unset = Surroundings(device=torch.device("cpu"), host="node-a", path=str(tmp_path))
    assert f"looked for {tmp_path}/data/none.npz; @data is {tmp_path}/data (<path>/data, as" in refusal(
        job, unset, NotReady
    )
    plain = changed("dataset", "flodl.datasets.digits.digits", file="/none/x.npz")
    assert (
        refusal(plain, error=NotReady)
        == "dataset.file=/none/x.npz: no such file on host node-a: looked for /none/x.npz"
    )


def test_data_is_found_under_the_hosts_own_data_path(tmp_path: Path) -> None:
    from flodl.datasets.digits import BUNDLED

    (tmp_path / "my digits.npz").write_bytes(BUNDLED.read_bytes())
    job = changed("dataset", "flodl.datasets.digits.digits", file="@data/my digits.npz")
    assert build(job, Surroundings(device=torch.device("cpu"), data_path=str(tmp_path))).num_samples == 1497


def test_data_that_cannot_be_read_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    text = refusal(changed("dataset", "flodl.datasets.digits.digits", file=str(tmp_path / "bad.npz")), error=NotReady)
    assert "dataset=flodl.datasets.digits.digits: cannot be built: " in text


def test_a_stream_of_data_is_refused_in_words(project: Path) -> None:
    (project / "streams.py").write_text(
        "from flodl.datasets.splits import Splits\ndef make(): return Splits(train=iter([1, 2]))\n"
    )
    place = Surroundings(device=torch.device("cpu"), path=str(project))
    text = refusal(changed("dataset", "streams.make"), place, NotReady)
    assert "its train set is a list_iterator; it must be map-style: have __len__ and __getitem__" in text


def test_a_pair_of_data_sets_is_one_to_train_on_and_one_to_be_judged_on(project: Path) -> None:
    (project / "pairs.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "def made(n): return TensorDataset(torch.zeros(n, 1, 8, 8), torch.zeros(n, dtype=torch.int64))\n"
        "def pair(): return made(200), made(30)\n"
    )
    built = build(changed("dataset", "pairs.pair"), Surroundings(device=torch.device("cpu"), path=str(project)))
    assert (built.num_samples, len(built.eval)) == (200, 30)


def test_every_host_tells_the_same_signature_of_the_same_data() -> None:
    same, other = build(JOB, HERE), build(changed("dataset", "flodl.datasets.synthetic.synthetic"), HERE)
    assert build(JOB, HERE).data_signature == same.data_signature
    assert same.data_signature.startswith("1497-")
    assert other.data_signature != same.data_signature


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder on sys.path. Its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
