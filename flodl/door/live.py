"""What has no import path lives on this machine only: refused for any other, else forked with its agent.

The agent is forked from the program before any thread of flodl's starts; a program that has initialised CUDA cannot be
forked from, for CUDA does not survive that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from flodl.door.named import Live
from flodl.errors import ConfigError, Problem
from flodl.spec.cluster import HostSpec
from flodl.spec.job import JobSpec

__all__ = ["live_problems", "require_no_rank"]


def live_problems(job: JobSpec, live: Sequence[Live]) -> Iterator[Problem]:
    """Why these cannot be trained with on the job's cluster."""
    if not live:
        return
    workers = job.cluster.workers
    reasons = [_elsewhere(host) for host in workers]
    reason = next((why for why in reasons if why), "")
    if not reason and len(workers) > 1:
        reason = f"{workers[1].host} is a host of its own"
    if reason:
        for thing in live:
            yield Problem(key=thing.key, value=thing.words, constraint=f"lives in this program, and {reason}",
                          remedy="make it a class or a top-level function of a file in the working folder, which every "
                          "host has (deploy.code=rsync)")  # fmt: skip
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        yield Problem(key=live[0].key, value=live[0].words, constraint="lives in this program, whose ranks cannot be "
                      "forked from it: it has initialised CUDA, which does not survive a fork",
                      remedy="use no GPU before Trainer.run, or make it a class or a top-level function of a file "
                      "in the working folder")  # fmt: skip


def _elsewhere(host: HostSpec) -> str:
    """What keeps a host's ranks from being forks of this process; "" where nothing does."""
    from flodl.probe.here import is_here

    if not is_here(host):
        return f"{host.host} is another machine"
    own = {"docker": host.docker, "python": host.python, "arch": host.arch}
    return next((f"{host.host} has its own {name}: {value}" for name, value in own.items() if value is not None), "")


def require_no_rank() -> None:
    """A rank imports the program's file for its functions; it must not start the run anew. Raises ConfigError."""
    from flodl.engine.birth import is_rank

    if is_rank():
        raise ConfigError([Problem(key="the program", constraint="starts a run while a rank imports it",
                                   remedy='put the start under `if __name__ == "__main__":`')])  # fmt: skip
