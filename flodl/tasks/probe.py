"""task=probe: will it work? Hosts, devices, software, ports, the network and a timed all-reduce; nothing is trained."""

from __future__ import annotations

import sys

import msgspec

from flodl.decide.roster import roster
from flodl.errors import HostUnready, TaskFindings
from flodl.spec.job import JobSpec
from flodl.tasks.order import Order
from flodl.tasks.status import switch

__all__ = ["perform", "plan"]


def perform(order: Order) -> None:
    """Look, and print what was found. Raises TaskFindings where anything forbids a run."""
    from flodl.engine.fleet import the_fleet
    from flodl.engine.launches import host_calls, threads_by_host
    from flodl.engine.rehearsal import Rehearsed, rehearse
    from flodl.muster import transport_of
    from flodl.probe.here import is_here
    from flodl.probe.look import Looked
    from flodl.probe.task import probe

    as_json, job = switch("json", order.given["json"]), order.job
    calls = host_calls(job, frozenset(host.host for host in job.cluster.workers if is_here(host)))
    with the_fleet(transport_of(job)) as fleet:

        def among_ranks(settled: JobSpec, seen: Looked) -> Rehearsed | None:
            uuids = {host: [gpu.uuid for gpu in gpus] for host, gpus in seen.gpus.items()}
            places = roster(settled, seen.counts, uuids)
            if len(places) < 2:
                return None
            met = fleet.meet(calls)  # they are there already: their facts
            facts = {host: answer.facts for host, answer in met.items() if not isinstance(answer, HostUnready)}
            return rehearse(settled, places, fleet, threads_by_host(settled.cluster, places, facts))

        found = probe(job, fleet, calls, rehearse=among_ranks, say=_say)
    _print(found.document(), as_json=as_json)
    if found.exit_code:
        error = TaskFindings("the hosts are not ready")
        error.is_told = True
        raise error


def plan(order: Order) -> None:
    """launch.dry_run: who would be asked."""
    for host in order.job.cluster.workers:
        sys.stdout.write(f"[{host.host}] would be asked; then ports, pairs and an all-reduce are tried\n")


def _print(document: dict[str, object], *, as_json: bool) -> None:
    from flodl.report.probe import print_probe
    from flodl.report.terminal import terminal_console

    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        print_probe(document, terminal_console())


def _say(text: str) -> None:
    """What takes its time, to a person who waits."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text} ...\n")
