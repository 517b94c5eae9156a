"""The data that a program trains on: how they are laid into the tree, and what it means that none were given.

A command that is typed has a data set by default, and says so on its page; a program that brings a model of its own
and no data has forgotten them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flodl.door.asked import shown
from flodl.door.config import TrainerConfig
from flodl.door.named import Names
from flodl.errors import Problem
from flodl.report.differences import key_of
from flodl.spec.component import Component
from flodl.spec.job import JobSpec

__all__ = ["lay_data", "missing_data", "without_data"]

PAIRED = "flodl.datasets.map_style.map_style"
NONE = "flodl.datasets.none.none"
DEFAULT = "flodl.datasets.digits.digits"  # conf/config.yaml's
SHIPPED_MODELS = "flodl.models."


def lay_data(config: TrainerConfig, names: Names, words: list[str], over: dict[str, Any]) -> None:
    """One data set as it is; with another one to judge on: both, under the name that pairs them."""
    if config.dataset is None and config.eval_dataset is None:
        return
    parts = {"train": config.dataset, "eval": config.eval_dataset}
    if config.eval_dataset is None:
        tree = names.tree("dataset", config.dataset)
        if isinstance(tree, str):
            words.append(f"dataset={tree}")
        elif tree is not None:
            over["dataset"] = tree
        return
    trees: dict[str, Any] = {}
    for part, given in parts.items():
        tree = None if given is None else names.tree(f"dataset.{part}", given)
        if given is None or isinstance(tree, str):
            names.problems.append(Problem(key=f"dataset.{part}", value=str(tree or ""), constraint="with eval_dataset, "
                                          "dataset must be a function, class or object, not a choice's name",
                                          remedy="give the function or class that makes it"))  # fmt: skip
        trees[part] = tree
    over["dataset"] = {"_target_": PAIRED, **trees}


def missing_data(job: JobSpec, given: Mapping[str, Any], config: TrainerConfig) -> Iterator[Problem]:
    """A model of the program's own, and nobody said on what it is to be trained. given: key of the tree -> what was
    handed in for it."""
    model = given.get("model")
    if model is None or not _is_unsaid(job, config):
        return
    if isinstance(model, str) and "." not in model and job.model.target.startswith(SHIPPED_MODELS):
        return  # as on the command line: what is shipped fits what is shipped
    yield Problem(
        key="dataset",
        constraint=f"is missing: the model is one of your own ({shown(model)})",
        remedy='give the data that it is for: dataset=...; dataset="digits" are shipped ones, and a recipe has its own',
    )


def without_data(job: JobSpec, config: TrainerConfig) -> JobSpec:
    """A loop's job of which nobody said on what it trains: it may do without, and hears so where it asks."""
    return job.replace(dataset=Component(target=NONE)) if job.loop is not None and _is_unsaid(job, config) else job


def _is_unsaid(job: JobSpec, config: TrainerConfig) -> bool:
    """Whether the data set is the command line's default, and not because anybody chose it. A recipe is a whole
    job: who names one has chosen its data."""
    if config.dataset is not None or config.eval_dataset is not None or job.dataset.target != DEFAULT:
        return False
    keys = [key_of(word) for word in config.overrides if not word.startswith("~experiment")]
    return not any(key in ("dataset", "experiment") or key.startswith("dataset.") for key in keys)
