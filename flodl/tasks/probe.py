"""task=probe: will this job run on these hosts? Everything is looked at, and all that is wrong is told together."""

from __future__ import annotations

import sys

import msgspec

from flodl.errors import TaskFindings
from flodl.spec.job import JobSpec
from flodl.tasks.order import Order
from flodl.tasks.status import switch

__all__ = ["perform"]


def perform(order: Order) -> None:
    """Print the table, or with json=true the document. Raises TaskFindings where there are errors."""
    as_json = switch("json", order.given["json"])
    from flodl.report.probe import print_probe
    from flodl.report.terminal import terminal_console

    result = _probed(order.job)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result.document()), indent=2).decode() + "\n")
    else:
        print_probe(result.document(), terminal_console())
    if result.exit_code:
        error = TaskFindings("the hosts are not ready")
        error.is_told = True
        raise error


def _probed(job: JobSpec):
    from flodl.decide.roster import roster
    from flodl.engine.fleet import the_fleet
    from flodl.engine.launches import host_calls, threads_by_host
    from flodl.engine.rehearsal import Rehearsed, rehearse
    from flodl.errors import HostUnready
    from flodl.muster import transport_of
    from flodl.probe.here import is_here
    from flodl.probe.look import Looked
    from flodl.probe.task import probe

    calls = host_calls(job, frozenset(host.host for host in job.cluster.workers if is_here(host)))
    with the_fleet(transport_of(job)) as fleet:

        def timed(settled: JobSpec, seen: Looked) -> Rehearsed | None:
            """Where more than one rank averages."""
            uuids = {host: [gpu.uuid for gpu in gpus] for host, gpus in seen.gpus.items()}
            places = roster(settled, seen.counts, uuids)
            met = fleet.meet(calls).items()
            facts = {host: answer.facts for host, answer in met if not isinstance(answer, HostUnready)}
            return rehearse(settled, places, fleet, threads_by_host(places, facts)) if len(places) > 1 else None

        return probe(job, fleet, calls, rehearse=timed, say=_say)


def _say(text: str) -> None:
    """What takes its time, to a person who waits."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\n")
