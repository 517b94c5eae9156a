"""task=resume: go on where a run stopped, in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flodl.spec.job import JobSpec
from flodl.tasks.again import again

__all__ = ["job_of"]


def job_of(tree: Mapping[str, Any], typed: Iterable[str]) -> JobSpec:
    """The run's job, which goes on from its newest bundle. Raises ConfigError."""
    job, folder = again(tree, typed)
    return job.replace(checkpoint=job.checkpoint.replace(resume_from=str(folder)))
