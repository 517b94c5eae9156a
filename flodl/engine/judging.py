"""A run's weights on a data set, in this process: no ranks, no controller."""

from __future__ import annotations

from pathlib import Path

import torch

from flodl.engine.build import Surroundings, build
from flodl.engine.evaluate import Scope, kept
from flodl.engine.pretrained import load_weights
from flodl.engine.reading import num_samples
from flodl.errors import ConfigError, Problem
from flodl.spec.job import JobSpec

__all__ = ["judge"]


def judge(job: JobSpec, weights: Path, path: Path) -> tuple[dict[str, float], int | None]:
    """(figures, samples) of the part of the job's data set that eval.split names; what an evaluation function of the
    user's looks at (None) is its own affair. path: where data lies.

    On a GPU where there is one. Raises ConfigError where weights and model differ, or there is nothing to evaluate on.
    """
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    here = job.cluster.workers[0]
    place = Surroundings(device=device, host=here.host, path=str(path), data_path=here.data_path, num_ranks=1)
    built = build(job, place)
    load_weights(built.model, weights, "run")
    data = built.train if job.eval.split == "train" else built.eval
    if data is None and built.functions.eval is None:
        raise ConfigError([Problem(key="dataset", constraint="has no part to evaluate on",
                                   remedy="eval.split=train takes the training part")])  # fmt: skip
    limit = None if job.eval.limit_batches is None else job.eval.limit_batches * built.batch_size
    size = built.slice_size or built.batch_size
    scope = Scope(device=device, batch_size=size, limit=limit, cast=built.precision.cast)
    figures = kept(built.functions.figures(built.model, built.step, data, scope), job.eval.metrics)
    if built.functions.eval is not None:
        return figures, None
    return figures, num_samples(data) if limit is None else min(limit, num_samples(data))
