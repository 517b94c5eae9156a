"""task=simulate: the same job in virtual time."""

from __future__ import annotations

import sys

from flodl.errors import ConfigError, Problem
from flodl.plan import gpus_of, uncounted
from flodl.tasks.order import Order

__all__ = ["perform"]


def perform(order: Order) -> None:
    """The same job in virtual time; prints what each epoch would be like."""
    job = order.job
    if job.loop is not None:
        raise ConfigError([Problem(key="loop", value=job.loop.name, constraint="cannot be simulated: what a loop of "
                                   "your own does is not known before", remedy="leave loop out")])  # fmt: skip
    from flodl.decide.roster import resolve_mode, roster
    from flodl.forecast import print_forecast
    from flodl.probe.clock import seconds_until
    from flodl.sim import simulate as run_virtually

    unknown = uncounted(job)
    for host in unknown:
        sys.stderr.write(f"warning: {host.host}: nobody is asked how many GPUs it has; taken as one\n")
    places = roster(job, gpus_of(job) | {host.host: 1 for host in unknown})
    job = job.replace(elche=job.elche.resolved(resolve_mode(places)))
    for key, metric in job.stop.metrics.items():
        sys.stderr.write(f"warning: {key}={metric}: is ignored: virtual time trains nothing, so there are no figures\n")
    end_by = None if job.stop.at is None else (seconds_until(job.stop.at), f"stop.at={job.stop.at}")
    seen = run_virtually(job.replace(stop=job.stop.without_figures()), places, end_by=end_by)
    print_forecast(job, places, seen.end, seen.epochs)
