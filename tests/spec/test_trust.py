"""Names that a config may not call are refused before anything is imported or started."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.spec.component import Component
from flodl.spec.trust import ALLOWED_PACKAGES, is_under, problems, references


def told(target: str, *, trusted: tuple[str, ...] = (), project: Any = None, **args: Any) -> list[str]:
    """key=value of everything that is refused."""
    component = Component(target=target, args=args)
    return [f"{p.key}={p.value}" for p in problems(component, "model", trusted=trusted, project=project)]


def test_shipped_and_torch_targets_may_pass() -> None:
    for target in ("flodl.models.mlp.MLP", "torch.nn.Linear", "torch.optim.SGD", "torchvision.models.resnet18"):
        assert told(target) == []


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "torch.hub.load",
        "torch.load",
        "torch.nnx.Linear",
        "pickle.loads",
    ],
)
def test_a_target_that_no_project_can_hold_is_refused(target: str) -> None:
    assert told(target) == [f"model._target_={target}"]


@pytest.mark.parametrize("target", ["system", "", "os.", ".system", "os system.x", "a.b;c", "os.system\n"])
def test_a_target_that_is_no_dotted_path_is_refused(target: str) -> None:
    assert told(target) == [f"model._target_={target}"] or "model._target_" in told(target)


def test_the_refusal_names_the_allowed_packages_and_the_way_to_trust_more() -> None:
    (problem,) = problems(Component(target="os.system"), "model")
    text = str(problem)
    assert all(package in text for package in ALLOWED_PACKAGES)
    assert "trusted_targets=[os.system]" in text
    assert "standard library" in text


def test_everything_in_the_tree_is_found_and_told_at_once() -> None:
    found = told(
        "os.system",
        layers=[{"_target_": "subprocess.run", "_args_": ["shutil.rmtree", {"_target_": "os.remove"}]}],
        callback="os:kill",
    )
    assert found == [
        "model._target_=os.system",
        "model.layers[0]._target_=subprocess.run",
        "model.layers[0]._args_[0]=shutil.rmtree",
        "model.layers[0]._args_[1]._target_=os.remove",
        "model.callback=os.kill",
    ]


def test_a_plain_string_or_a_file_name_is_no_reference() -> None:
    harmless = {"a": "bert-base", "b": "test.csv", "c": "@data/os.system", "d": "./os.system", "e": "resnet18.a1_in1k"}
    assert told("torch.nn.Linear", **harmless) == []


def test_trusted_targets_extend_the_list_by_package_and_by_name() -> None:
    assert told("os.system", trusted=("os.system",)) == []
    assert told("pickle.loads", trusted=("pickle",)) == []
    assert told("pickletools.dis", trusted=("pickle",)) == ["model._target_=pickletools.dis"]


def test_an_unknown_module_may_lie_in_the_project_unless_that_is_known() -> None:
    assert told("my_models.Net") == []
    assert told("my_models.Net", project=lambda root: root == "my_models") == []
    assert told("my_models.Net", project=lambda root: False) == ["model._target_=my_models.Net"]


def test_a_misspelt_path_gets_its_own_remedy_unless_it_is_trusted_or_no_target() -> None:
    slips: Any = lambda path: ("leads nowhere", "did you mean mine?")  # noqa: E731
    component = Component(target="mien.Net", args={"hook": "mien.hook", "inner": {"_target_": "theirs.Net"}})
    found = problems(component, "model", trusted=("theirs",), project=lambda root: False, misspelt=slips)
    assert [str(p) for p in found] == ["model._target_=mien.Net: leads nowhere; did you mean mine?"]


def test_the_target_comes_first_in_the_list_of_references() -> None:
    component = Component(target="torch.nn.Sequential", args={"a": {"_target_": "torch.nn.ReLU"}})
    assert [(r.key, r.path, r.is_target) for r in references(component, "m")] == [
        ("m._target_", "torch.nn.Sequential", True),
        ("m.a._target_", "torch.nn.ReLU", True),
    ]


def test_a_package_ends_at_a_dot() -> None:
    assert is_under("torch.nn", ["torch.nn"])
    assert is_under("torch.nn.Linear", ["torch.nn"])
    assert not is_under("torch.nnx.Linear", ["torch.nn"])
