"""task=eval: what a run's weights make of a data set, on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flodl.errors import ConfigError, Problem
from flodl.record.fate import tidy
from flodl.record.folder import RunFolder
from flodl.tasks.again import again
from flodl.tasks.order import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flodl.spec.job import JobSpec

__all__ = ["job_of", "perform"]


def job_of(tree: Mapping[str, Any], typed: Iterable[str]) -> JobSpec:
    """The run's job; the folder is asked for once more when it is carried out. Raises ConfigError."""
    return again(tree, typed)[0]


def perform(order: Order) -> None:
    """Evaluate and print; json=true: one document."""
    from flodl.engine.judging import judge  # late: torch
    from flodl.tasks.which import run_folder, shown

    folder: RunFolder = run_folder(order.given["run"])
    tidy(folder)  # of a run that was killed between a bundle and its weights
    if not folder.weights_path.exists():
        remedy = "a run saves them with each bundle; see checkpoint.every_epochs"
        raise ConfigError(
            [Problem(key="run", value=str(folder.path), constraint="has saved no weights", remedy=remedy)]
        )
    figures, samples = judge(order.job, folder.weights_path, Path.cwd())
    if order.given["json"]:
        document = {"schema": 1, "run": str(folder.path), "samples": samples, "eval": figures}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    told = ", ".join(f"{name} {value:.6g}" for name, value in sorted(figures.items()))
    over = "by callbacks.eval_fn" if samples is None else f"over {samples:,} samples"
    sys.stdout.write(f"{shown(folder.weights_path)} {over}: {told}\n")
