"""What a cluster file may say and this version cannot do yet: refused in words, never passed over."""

from __future__ import annotations

from collections.abc import Iterator

from flodl.errors import Problem
from flodl.spec.job import JobSpec

__all__ = ["unbuilt"]


def unbuilt(job: JobSpec) -> Iterator[Problem]:
    """What a cluster file may say and this version cannot do yet: refused in words, never passed over."""
    later = "comes with a later version of flodl"
    if job.membership.max_failure is not None:
        yield Problem(key="membership.max_failure", value=str(job.membership.max_failure), remedy="leave it null",
                      constraint=f"the first dead rank ends a run; going on without it {later}")  # fmt: skip
