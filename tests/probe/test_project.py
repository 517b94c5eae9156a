"""Which modules a job needs on every host, and which of them a host has; looking runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.probe.judge import judge
from flodl.probe.project import missing_modules, named_modules
from flodl.spec.component import Component
from flodl.spec.job import JobSpec
from tests.probe.jobs import healthy, job_of


def naming(*targets: str, trusted: tuple[str, ...] = ()) -> JobSpec:
    """A job with these targets, one inside the other."""
    nested: dict[str, object] = {}
    for target in reversed(targets[1:]):
        nested = {"inner": {"_target_": target, **nested}}
    job = job_of({"host": "a"})
    return job.replace(model=Component(target=targets[0], args=nested), trusted_targets=trusted)


def project(folder: Path) -> Path:
    (folder / "nets" / "deep").mkdir(parents=True)
    (folder / "nets" / "small.py").write_text("raise SystemExit('imported')\n")
    (folder / "nets" / "deep" / "wide.py").write_text("raise SystemExit('imported')\n")
    (folder / "mine.py").write_text("raise SystemExit('imported')\n")
    return folder


def test_what_flodl_and_torch_bring_is_no_module_of_the_project(tmp_path: Path) -> None:
    assert named_modules(naming("torch.nn.Linear", "flodl.models.mlp.MLP"), tmp_path) == ()


def test_a_target_names_its_module_as_far_as_the_project_shows_it(tmp_path: Path) -> None:
    targets = ("mine.Net", "nets.small.Net.make", "nets.deep.wide.Net", "elsewhere.deep.Net", "mine.other")
    assert named_modules(naming(*targets), project(tmp_path)) == ("mine", "nets.small", "nets.deep.wide", "elsewhere")


def test_allowed_and_trusted_packages_are_looked_for_as_a_whole(tmp_path: Path) -> None:
    job = naming("timm.models.resnet.resnet18", "theirs.deep.Net", trusted=("theirs.deep",))
    assert named_modules(job, tmp_path) == ("timm", "theirs")


def test_a_host_has_what_lies_in_its_folder_or_is_installed_there(tmp_path: Path) -> None:
    here = str(project(tmp_path))
    assert missing_modules(("mine", "nets.small", "nets.deep.wide", "msgspec", "sys", "json.decoder"), here) == ()
    assert missing_modules(("mine.deep", "nets.tall", "nets.deep.flat", "theirs"), here) == (
        "mine.deep",
        "nets.tall",
        "nets.deep.flat",
        "theirs",
    )


@pytest.mark.parametrize("exists", [True, False])
def test_in_a_folder_that_is_not_there_only_the_folder_is_missing(exists: bool) -> None:
    report = healthy("a", path_exists=exists, missing_modules=("mine",))
    [finding] = judge(job_of({"host": "a"}), {"a": report}, "1.0")
    assert ("mine is missing" in finding.message) == exists
