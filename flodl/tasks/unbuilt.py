"""What a cluster file may say and this version cannot do yet: refused in words, never passed over."""

from __future__ import annotations

from collections.abc import Iterator

from flodl.errors import Problem
from flodl.probe.here import is_here
from flodl.spec.job import JobSpec

__all__ = ["unbuilt"]


def unbuilt(job: JobSpec) -> Iterator[Problem]:
    """What a cluster file may say and this version cannot do yet: refused in words, never passed over."""
    later = "comes with a later version of flodl"
    for i, host in enumerate(job.cluster.workers):
        key = f"cluster.workers[{i}]"
        if not is_here(host):
            yield Problem(key=f"{key}.host", value=host.host, constraint=f"is another machine, and SSH {later}",
                          remedy="use cluster=local or rehearsal; task=simulate does without the hosts")  # fmt: skip
        if host.docker is not None:
            yield Problem(key=f"{key}.docker", value=host.docker, constraint=later, remedy="leave it out")
    for name in ("code", "data"):
        if getattr(job.cluster.deploy, name) != "none":
            yield Problem(key=f"cluster.deploy.{name}", value="rsync", constraint=later, remedy="copy it yourself")
    if job.cluster.controller.join.min_ranks is not None:
        yield Problem(key="cluster.controller.join.min_ranks", value=str(job.cluster.controller.join.min_ranks),
                      constraint=f"a start without all ranks {later}", remedy="leave it null")  # fmt: skip
    if job.membership.max_failure is not None:
        yield Problem(key="membership.max_failure", value=str(job.membership.max_failure), remedy="leave it null",
                      constraint=f"the first dead rank ends a run; going on without it {later}")  # fmt: skip
