"""Before a run: its hosts are met, looked at and counted, and every trouble of every host is told at once.

With `controller.join.min_ranks` a run may begin without hosts that are not ready; then that is said, loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl.decide.roster import Place, roster
from flodl.engine.fleet import OpenStreams
from flodl.engine.launches import host_calls, is_loopback, threads_by_host
from flodl.errors import ConfigError, HostUnready, NotReady, Problem
from flodl.ports import Fleet
from flodl.probe.finding import Finding, errors_of
from flodl.probe.here import is_here
from flodl.probe.look import look
from flodl.probe.pairs import reachable
from flodl.probe.report import HostReport
from flodl.spec.component import Component
from flodl.spec.job import JobSpec

__all__ = ["Mustered", "muster", "pass_gate", "transport_of"]

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Mustered:
    """Hosts that are ready. places: their devices. threads: host -> torch threads of each of its ranks. reports: what
    each has said about itself."""

    places: tuple[Place, ...]
    threads: dict[str, int]
    reports: dict[str, HostReport]


def transport_of(job: JobSpec) -> OpenStreams | None:
    """What starts agents on other machines and in containers; None where the job has neither.

    Raises ConfigError where `launch.transport` names what may not be called.
    """
    if all(is_here(host) and host.docker is None for host in job.cluster.workers):
        return None
    from flodl.engine.trust import Trust, checked

    key = "launch.transport"
    tree = checked({key: Component(target=job.launch.transport)}, Trust(job.trusted_targets, Path.cwd()))
    found: OpenStreams = tree[key]["_target_"]
    return found


def muster(job: JobSpec, fleet: Fleet, say: Say) -> Mustered:
    """Meet the job's hosts, look at them, number their ranks.

    Raises ConfigError for what the cluster file has wrong, NotReady with everything that forbids the start.
    """
    here = frozenset(host.host for host in job.cluster.workers if is_here(host))
    _check_address(job, here)
    calls = host_calls(job, here)
    met = fleet.meet(calls)
    looked = look(job, fleet, calls, met=met)
    forbidding = errors_of(looked.findings) if job.launch.probe else ()
    missing = {*looked.unready, *(finding.host for finding in forbidding)}
    told = [finding for finding in looked.findings if finding.severity == "error" and finding.host in looked.unready]
    errors = forbidding or tuple(told)
    if errors:
        _allow_without(job, missing, errors, say)
    elif job.launch.probe:
        _warn(looked.findings, say)
    job = _without(job, missing)
    uuids = {host: [gpu.uuid for gpu in gpus] for host, gpus in looked.gpus.items()}
    places = roster(job, looked.counts, uuids)
    least = job.cluster.controller.join.min_ranks
    if missing and least is not None and len(places) < least:
        raise NotReady(_listed(errors, f"controller.join.min_ranks={least}, and {len(places)} are left"))
    facts = {host: met_.facts for host, met_ in met.items() if not isinstance(met_, HostUnready)}
    return Mustered(places=places, threads=threads_by_host(places, facts), reports=looked.reports)


def pass_gate(job: JobSpec, fleet: Fleet, mustered: Mustered, endpoints: Sequence[str]) -> None:
    """Try every way that the run will need. endpoints: the controller's, as hosts dial them. Raises NotReady."""
    if not job.launch.probe:
        return
    labels = {place.host for place in mustered.places}
    reports = {host: report for host, report in mustered.reports.items() if host in labels}
    errors = errors_of(reachable(job, fleet, reports, endpoints))
    if errors:
        raise NotReady(_listed(errors))


def _allow_without(job: JobSpec, missing: set[str], errors: Sequence[Finding], say: Say) -> None:
    """Go on without these hosts where the job allows it. Raises NotReady where it does not."""
    least = job.cluster.controller.join.min_ranks
    is_about_all = "" in missing or len(missing) == len(job.cluster.workers)
    if least is None or is_about_all:
        raise NotReady(_listed(errors))
    say(_listed(errors))
    say(f"starting without {', '.join(sorted(missing))}: controller.join.min_ranks={least} allows it")


def _without(job: JobSpec, missing: set[str]) -> JobSpec:
    workers = tuple(host for host in job.cluster.workers if host.host not in missing)
    return job.replace(cluster=job.cluster.replace(workers=workers))


def _warn(findings: Sequence[Finding], say: Say) -> None:
    for finding in findings:
        if finding.severity == "warning":
            say(f"warning: {_line(finding)}")


def _listed(errors: Sequence[Finding], also: str = "") -> str:
    head = f"{len(errors)} things forbid the start:" if len(errors) > 1 else "the hosts are not ready:"
    return "\n".join([head, *(f"  {_line(error)}" for error in errors), *([f"  {also}"] if also else [])])


def _line(finding: Finding) -> str:
    place = ": ".join(part for part in (finding.host, finding.key) if part)
    return f"{place}: {finding.message}" + (f"; {finding.remedy}" if finding.remedy else "")


def _check_address(job: JobSpec, here: frozenset[str]) -> None:
    controller = job.cluster.controller.host
    elsewhere = [host.host for host in job.cluster.workers if host.host not in here]
    if elsewhere and is_loopback(controller):
        raise ConfigError([Problem(key="cluster.controller.host", value=controller,
                                   constraint=f"is no address that {', '.join(elsewhere)} can reach",
                                   remedy="name this machine's address on the network of the hosts")])  # fmt: skip
