"""Before a run: its hosts get what they lack, are met, looked at, counted; troubles of all hosts are told at once.

With `controller.join.min_ranks` a run may begin without hosts that are not ready; then that is said, loudly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl.decide.roster import Place, resolve_mode, roster
from flodl.engine.fleet import OpenStreams
from flodl.engine.launches import host_calls, is_loopback, threads_by_host
from flodl.errors import ConfigError, HostUnready, NotReady, Problem
from flodl.ports import Deploy, Fleet, Greeting, HostCall
from flodl.probe.compare import nccl_agrees
from flodl.probe.finding import Finding, errors_of, unready
from flodl.probe.here import is_here
from flodl.probe.look import Looked, look, with_torch
from flodl.probe.pairs import reachable
from flodl.probe.report import Gpu, HostReport
from flodl.report.probe import findings_text
from flodl.report.pushes import PushTeller
from flodl.spec.component import Component
from flodl.spec.elche import Mode
from flodl.spec.job import JobSpec

__all__ = ["Mustered", "muster", "pass_gate", "transport_of"]

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Mustered:
    """Hosts that are ready. mode: what `elche=auto` has come to. places: their devices. threads: host -> torch threads
    of each of its ranks. reports: what each has said about itself."""

    mode: Mode
    places: tuple[Place, ...]
    threads: dict[str, int]
    reports: dict[str, HostReport]

    @property
    def gpus(self) -> dict[str, tuple[Gpu, ...]]:
        """Host -> the GPUs that its ranks train on."""
        used = {(place.host, place.device) for place in self.places}
        return {
            host: tuple(gpu for gpu in report.gpus if (host, f"cuda:{gpu.index}") in used)
            for host, report in self.reports.items()
        }


def transport_of(job: JobSpec) -> OpenStreams | None:
    """What starts agents on other machines and in containers; None where the job has neither.

    Raises ConfigError where `launch.transport` names what may not be called.
    """
    if all(is_here(host) and host.docker is None for host in job.cluster.workers):
        return None
    found: OpenStreams = _named(job, "transport")
    return found


def muster(job: JobSpec, fleet: Fleet, say: Say) -> Mustered:
    """Meet the job's hosts, look at them, number their ranks.

    Raises ConfigError for what the cluster file has wrong, NotReady with everything that forbids the start.
    """
    here = frozenset(host.host for host in job.cluster.workers if is_here(host))
    _check_address(job, here)
    calls = host_calls(job, here)
    troubles = _deploy(job, calls, say)
    if job.cluster.deploy.code != "none" or job.cluster.deploy.data != "none":
        say("pushes are over: the hosts are met and looked at")
    met = _met(fleet, calls, troubles)
    looked = look(job, fleet, calls, met=met)
    if job.launch.probe:
        looked = with_torch(job, fleet, calls, looked)
    job = _ready_part(job, looked, say)
    uuids = {host: [gpu.uuid for gpu in gpus] for host, gpus in looked.gpus.items()}
    places = roster(job, looked.counts, uuids)
    least = job.cluster.controller.join.min_ranks
    if least is not None and len(places) < least:
        raise NotReady(f"too few ranks are ready: {len(places)}, and controller.join.min_ranks is {least}")
    facts = {host: answer.facts for host, answer in met.items() if not isinstance(answer, HostUnready)}
    return Mustered(
        mode=_mode(job, places, looked),
        places=places,
        threads=threads_by_host(job.cluster, places, facts),
        reports=looked.reports,
    )


def pass_gate(job: JobSpec, fleet: Fleet, mustered: Mustered, endpoints: Sequence[str]) -> None:
    """Try every way that the run will need. endpoints: the controller's, as hosts dial them. Raises NotReady."""
    if not job.launch.probe:
        return
    labels = {place.host for place in mustered.places}
    reports = {host: report for host, report in mustered.reports.items() if host in labels}
    errors = errors_of(reachable(job, fleet, reports, endpoints))
    if errors:
        raise NotReady(_table(errors))


def _ready_part(job: JobSpec, looked: Looked, say: Say) -> JobSpec:
    """The job with those of its hosts that are ready. Raises NotReady where it may not begin with fewer than all."""
    if job.launch.probe:
        errors = errors_of(looked.findings)
        warnings = [finding for finding in looked.findings if finding.severity == "warning"]
        if warnings:
            say(findings_text(warnings))
    else:
        errors = tuple(unready(trouble) for trouble in looked.unready.values())
    if not errors:
        return job
    missing = {*looked.unready, *(error.host for error in errors)}
    left = [host for host in job.cluster.workers if host.host not in missing]
    if job.cluster.controller.join.min_ranks is None or "" in missing or not left:
        raise NotReady(_table(errors))
    say(findings_text(errors))
    say(f"starting without {', '.join(sorted(missing))}: controller.join.min_ranks allows it")
    return job.replace(cluster=job.cluster.replace(workers=tuple(left)))


def _mode(job: JobSpec, places: Sequence[Place], looked: Looked) -> Mode:
    """What the job asks for; for `auto` what fits the devices, and NCCL only where all hosts have the same one."""
    if job.elche.mode != "auto":
        return job.elche.mode
    lending = {place.host for place in places if place.device != "cpu"}
    agrees = nccl_agrees({host: report for host, report in looked.reports.items() if host in lending})
    return resolve_mode(places) if agrees else "cpu_cadence"


def _met(fleet: Fleet, calls: Sequence[HostCall], troubles: Sequence[HostUnready]) -> dict[str, Greeting | HostUnready]:
    """Hosts that could not be pushed to are not ready, as others are that cannot be met: nobody asks them again."""
    found: dict[str, Greeting | HostUnready] = {trouble.host: trouble for trouble in troubles}
    return {**found, **fleet.meet([call for call in calls if call.label not in found])}


def _deploy(job: JobSpec, calls: Sequence[HostCall], say: Say) -> tuple[HostUnready, ...]:
    """Push code and data where the job wants that; the troubles of all hosts."""
    if job.cluster.deploy.code == job.cluster.deploy.data == "none":
        return ()
    deploy: Deploy = _named(job, "deploy")
    return deploy(job.cluster, calls, Path.cwd(), PushTeller(say, is_live=sys.stdout.isatty()).tell)


def _named(job: JobSpec, key: str) -> Any:
    """What `launch.<key>` names, if it may be called. Raises ConfigError where it may not."""
    from flodl.engine.trust import Trust, checked

    name = f"launch.{key}"
    tree = checked({name: Component(target=getattr(job.launch, key))}, Trust(job.trusted_targets, Path.cwd()))
    return tree[name]["_target_"]


def _table(errors: Sequence[Finding]) -> str:
    return f"the hosts are not ready:\n{findings_text(errors)}"


def _check_address(job: JobSpec, here: frozenset[str]) -> None:
    controller = job.cluster.controller.host
    elsewhere = [host.host for host in job.cluster.workers if host.host not in here]
    if elsewhere and is_loopback(controller):
        raise ConfigError([Problem(key="cluster.controller.host", value=controller,
                                   constraint=f"is no address that {', '.join(elsewhere)} can reach",
                                   remedy="name this machine's address on the network of the hosts")])  # fmt: skip
