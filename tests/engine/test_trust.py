"""What a config may call is judged by the object behind the name, and that object is what is called."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.engine.trust import Trust, checked
from flodl.errors import ConfigError, NotReady
from flodl.models.mlp import MLP
from flodl.spec.component import Component


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder on sys.path, with a name that hurts. Modules of the test are forgotten afterwards."""
    folder = tmp_path / "Bob's größtes project"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def tree_of(target: str, trust: Trust | None = None, **args: Any) -> dict[str, Any]:
    return checked({"model": Component(target=target, args=args)}, trust or Trust())["model"]


def refused(target: str, trust: Trust | None = None, **args: Any) -> str:
    """The text of the refusal."""
    with pytest.raises(ConfigError) as caught:
        tree_of(target, trust, **args)
    return str(caught.value)


def test_an_accepted_name_becomes_the_object_itself() -> None:
    tree = tree_of("torch.nn.Sequential", first={"_target_": "flodl.models.mlp.MLP", "hidden": [1]}, n=[1, "a"])
    assert tree == {
        "_target_": torch.nn.Sequential,
        "first": {"_target_": MLP, "hidden": [1]},
        "n": [1, "a"],
    }


def test_a_foreign_function_reached_under_an_allowed_name_is_refused() -> None:
    text = refused("torch.nn.modules.module.torch.hub.load")
    assert "model._target_=torch.nn.modules.module.torch.hub.load: is torch.hub.load" in text


def test_the_alias_trick_runs_no_planted_file(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\ndef net(): pass\n")
    refused("torch.nn.modules.module.torch.hub.load", repo_or_dir=str(tmp_path), source="local", model="net")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "torch.hub.load",
        "hydra.utils.get_method",
        "torch.nn.modules.module.OrderedDict",
        "torch.nn.modules.module.functools.partial",
        "flodl.engine.trust.importlib.import_module",
        "flodl.engine.trust.sys.exit",
        "torch.nn.functional.warnings.os.system",
    ],
)
def test_a_foreign_target_is_refused(target: str) -> None:
    assert f"model._target_={target}: " in refused(target)


@pytest.mark.parametrize(
    "target", ["torch.nn", "torch.nn.modules.module._global_forward_hooks", "flodl.spec.trust._IMPORT_PATH"]
)
def test_a_target_that_is_neither_class_nor_function_is_refused(target: str) -> None:
    assert "which a config may not call" in refused(target)


def test_a_target_that_does_not_exist_is_told() -> None:
    for target, remedy in (("torch.nn.Linea", "did you mean Linear?"), ("flodl.models.mpl.MLP", "did you mean mlp?")):
        assert "cannot be found: " in refused(target)
        assert refused(target).endswith(f"; {remedy}")
    assert "cannot be found: " in refused("flodl.models.vgg.VGG")


def test_nothing_foreign_is_imported_below_an_alias(project: Path) -> None:
    (project / "mine.py").write_text("import json\n")
    assert "json.tool" not in sys.modules
    assert "cannot be found" in refused("mine.json.tool.main", Trust(project=project))
    assert "json.tool" not in sys.modules


def test_every_refusal_of_every_component_is_told_at_once() -> None:
    parts = {
        "model": Component(target="os.system", args={"layers": [{"_target_": "subprocess.run"}]}),
        "step": Component(target="torch.nn.ReLU", args={"_args_": ["${oc.env:HOME}", "???"], "hook": "os.kill"}),
    }
    with pytest.raises(ConfigError) as caught:
        checked(parts, Trust())
    assert {problem.key for problem in caught.value.problems} == {
        "model._target_",
        "model.layers[0]._target_",
        "step._args_[0]",
        "step._args_[1]",
        "step.hook",
    }


def test_a_string_that_leads_to_foreign_code_is_refused() -> None:
    for path in ("os.system", "os:system", "torch.hub.load", "torch.nn.modules.module.torch.hub", "numpy.load"):
        assert "reads like " in refused("torch.nn.Linear", hook=path)


def test_a_string_of_a_package_that_is_not_loaded_is_refused_without_loading_it() -> None:
    assert "this" not in sys.modules
    assert "reads like an import path of this" in refused("torch.nn.Linear", hook="this.zen")
    assert "this" not in sys.modules


def test_a_string_that_leads_to_nothing_or_to_allowed_code_may_stand() -> None:
    harmless = ["val.loss", "resnet18.a1_in1k", "torch.float32", "torch.nn.ReLU", "torch.nn", "a.csv", "no import"]
    assert tree_of("torch.nn.Linear", a=harmless)["a"] == harmless


def test_modules_of_the_project_may_be_called(project: Path) -> None:
    (project / "nets").mkdir()
    (project / "nets" / "__init__.py").write_text("")
    (project / "nets" / "small.py").write_text("class Net: pass\ndef make(): return Net()\n")
    trust = Trust(project=project)
    assert tree_of("nets.small.Net", trust)["_target_"].__name__ == "Net"
    assert tree_of("nets.small.make", trust)["_target_"]().__class__.__name__ == "Net"


def test_a_package_without_init_in_the_project_may_be_called(project: Path) -> None:
    (project / "loose").mkdir()
    (project / "loose" / "small.py").write_text("class Net: pass\n")
    assert tree_of("loose.small.Net", Trust(project=project))["_target_"].__name__ == "Net"


def test_what_a_project_module_only_imports_is_not_the_project(project: Path) -> None:
    (project / "mine.py").write_text("from os import system\nfrom subprocess import Popen\nimport shutil\n")
    trust = Trust(project=project)
    assert "is posix.system" in refused("mine.system", trust)
    assert "is subprocess.Popen" in refused("mine.Popen", trust)
    assert "is shutil.rmtree" in refused("mine.shutil.rmtree", trust)


def test_a_module_outside_the_project_is_not_even_imported(project: Path, tmp_path: Path) -> None:
    (project / "stranger.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\nclass Net: pass\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "lies outside the packages" in refused("stranger.Net", Trust(project=elsewhere))
    assert not (tmp_path / "canary").exists()


def test_on_a_host_a_module_that_is_not_there_is_the_hosts_lack_and_not_a_wrong_name(project: Path) -> None:
    """The controller has accepted the names. What is there and may not be called stays refused."""
    (project / "needy.py").write_text("import absent_friend\n")
    trust = Trust(project=project, host="node-b")
    for target, words in (
        ("stranger.Net", f"the module stranger is missing on node-b: it is not in {project}, nor installed there"),
        ("needy.Net", "it needs the module absent_friend, which is missing on node-b"),
    ):
        with pytest.raises(NotReady, match=re.escape(f"model._target_={target}: {words}")):
            tree_of(target, trust)
    (project / "plain.py").write_text("")
    assert "cannot be found: No module named 'plain.Nett'" in refused("plain.Nett", trust)
    assert "lies outside the packages" in refused("os.system", trust)


def test_an_environment_inside_the_project_folder_is_no_part_of_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = project / "envs" / "sm61" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "lodger.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(str(packages))
    assert "lies outside the packages" in refused("lodger.Net", Trust(project=project))
    inside = Trust(project=Path(os.path.commonpath([sys.prefix, sys.base_prefix, torch.__file__])))
    assert "lies outside the packages" in refused("os.system", inside)
    assert "lies outside the packages" in refused("numpy.load", inside)


def test_an_error_in_a_project_module_is_told_with_the_key(project: Path) -> None:
    (project / "broken.py").write_text("1 / 0\n")
    text = refused("broken.Net", Trust(project=project))
    assert "model._target_=broken.Net: fails while it is imported: ZeroDivisionError" in text
    assert "trust" not in text


def test_a_string_never_runs_a_module_of_the_project(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    tree_of("torch.nn.Linear", Trust(project=project), metric="train.loss")
    assert not (tmp_path / "canary").exists()


def test_trusted_targets_extend_the_list() -> None:
    assert (
        tree_of("collections.OrderedDict", Trust(["collections"]))["_target_"] is __import__("collections").OrderedDict
    )
    assert tree_of("os.getcwd", Trust(["os.getcwd"]))["_target_"] is os.getcwd
    assert "which a config may not call" in refused("os.system", Trust(["os"]))  # its own module is posix


def test_a_class_method_is_judged_by_its_class_and_its_function(project: Path) -> None:
    (project / "mine.py").write_text(
        "class Net:\n    @classmethod\n    def load(cls): return 'loaded'\nstray = __import__('pathlib').Path.cwd\n"
    )
    trust = Trust(project=project)
    assert tree_of("mine.Net.load", trust)["_target_"]() == "loaded"
    assert "which a config may not call" in refused("mine.stray", trust)


def test_a_dataclass_is_called_and_not_taken_for_a_schema() -> None:
    target = tree_of("flodl.decide.schedule.Cosine")["_target_"]
    assert target(warmup=0.25).warmup == 0.25
