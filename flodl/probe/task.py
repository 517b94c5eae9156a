"""task=probe: everything that a launch looks at, and what takes longer: speeds of the network, a timed all-reduce."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from flodl.errors import ConfigError, FlodlError, Problem
from flodl.ports import Fleet, HostCall
from flodl.probe.compare import nccl_agrees
from flodl.probe.finding import Finding, errors_of, in_order
from flodl.probe.judge import chosen_gpus
from flodl.probe.look import Looked, look, with_torch
from flodl.probe.pairs import PairFigures, measured, reachable
from flodl.probe.report import HostReport
from flodl.spec.cluster import ControllerSpec
from flodl.spec.job import JobSpec

__all__ = ["ProbeResult", "Rehearsed", "probe"]

SCHEMA = 1
Say = Callable[[str], None]


class Rehearsed(Protocol):
    """A timed all-reduce through real ranks. ms: the median of some; trouble: why there is none."""

    @property
    def backend(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def ms(self) -> float: ...
    @property
    def trouble(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """hosts: labels in the order of the cluster file. reports: of those that answered."""

    hosts: tuple[str, ...]
    reports: dict[str, HostReport]
    findings: tuple[Finding, ...]
    pairs: tuple[PairFigures, ...] = ()
    rehearsed: Rehearsed | None = None

    @property
    def exit_code(self) -> int:
        return 1 if errors_of(self.findings) else 0

    def document(self) -> dict[str, Any]:
        """What json=true prints; docs/probe.schema.json describes it."""
        return {
            "schema": SCHEMA,
            "hosts": [_host(host, self.reports.get(host)) for host in self.hosts],
            "pairs": [msgspec.structs.asdict(pair) for pair in self.pairs],
            "allreduce": _allreduce(self.rehearsed),
            "findings": [msgspec.structs.asdict(finding) for finding in self.findings],
            "exit_code": self.exit_code,
        }


def probe(
    job: JobSpec,
    fleet: Fleet,
    calls: Sequence[HostCall],
    *,
    rehearse: Callable[[JobSpec, Looked], Rehearsed | None] | None = None,
    say: Say = lambda text: None,
) -> ProbeResult:
    """Look at every host, try every connection, time an all-reduce. Never raises for what is wrong with a host.

    rehearse: runs one among real ranks (the job's mode is settled by then); left out where there are errors. say: is
    told what is being done now.
    """
    labels = tuple(call.label for call in calls)
    say(f"looking at {', '.join(labels)}")
    seen = with_torch(job, fleet, calls, look(job, fleet, calls, is_gate=False))
    say("trying ports and pairs")
    findings = in_order((*seen.findings, *_connections(job, fleet, seen)), labels)
    if errors_of(findings):
        return ProbeResult(hosts=labels, reports=seen.reports, findings=findings)
    if len(calls) > 1:
        say("measuring latency and bandwidth")
    pairs = measured(job, fleet, seen.reports) if len(calls) > 1 else ()
    rehearsed = None
    try:
        rehearsed = _rehearsed(_settled(job, seen), seen, rehearse, say)
    except ConfigError as error:  # what only the counted devices could show
        findings = in_order((*findings, *map(_of_problem, error.problems)), labels)
    if rehearsed is not None and rehearsed.trouble:
        findings = in_order((*findings, _no_allreduce(rehearsed)), labels)
    return ProbeResult(hosts=labels, reports=seen.reports, findings=findings, pairs=pairs, rehearsed=rehearsed)


def _connections(job: JobSpec, fleet: Fleet, seen: Looked) -> tuple[Finding, ...]:
    """The controller's ports are held open for so long as hosts try them."""
    try:
        with _doors(job.cluster.controller) as endpoints:
            return reachable(job, fleet, seen.reports, endpoints)
    except OSError as error:
        controller = job.cluster.controller
        place = f"{controller.bind or controller.host}, port {controller.port}"
        return (
            Finding(
                severity="error",
                host="",
                key="cluster.controller",
                message=f"this machine cannot listen on {place}: {error.strerror or error}",
                remedy="controller.host (or controller.bind) is an address of this machine; controller.port and the "
                "next number must be free, 0 takes two free ones",
            ),
        )


@contextmanager
def _doors(controller: ControllerSpec) -> Iterator[tuple[str, str]]:
    """Two listening sockets where a run's controller has its own. Raises OSError."""
    place = controller.bind or controller.host
    family, _, _, _, address = socket.getaddrinfo(place, 0, type=socket.SOCK_STREAM)[0]
    with contextlib.ExitStack() as opened:
        ports: list[int] = []
        for port in (controller.port, controller.port + 1 if controller.port else 0):
            door = opened.enter_context(socket.create_server((str(address[0]), port), family=family, backlog=256))
            ports.append(door.getsockname()[1])
        told = f"[{controller.host}]" if ":" in controller.host else controller.host
        yield f"tcp://{told}:{ports[0]}", f"tcp://{told}:{ports[1]}"


def _settled(job: JobSpec, seen: Looked) -> JobSpec:
    """elche=auto does not choose NCCL where hosts have different ones."""
    asked = {host: report for host, report in seen.reports.items() if chosen_gpus(job, report)}
    return job if nccl_agrees(asked) else job.replace(elche=job.elche.resolved("cpu_cadence"))


def _rehearsed(
    job: JobSpec, seen: Looked, rehearse: Callable[[JobSpec, Looked], Rehearsed | None] | None, say: Say
) -> Rehearsed | None:
    if rehearse is None:
        return None
    say("timing an all-reduce among the ranks")
    try:
        return rehearse(job, seen)
    except ConfigError:
        raise
    except FlodlError as error:
        return _Failed(trouble=str(error))


class _Failed(msgspec.Struct, frozen=True, kw_only=True):
    trouble: str
    backend: str = ""
    num_bytes: int = 0
    ms: float = 0.0


def _of_problem(problem: Problem) -> Finding:
    message = f"{problem.value}: {problem.constraint}" if problem.value else problem.constraint
    return Finding(severity="error", host="", key=problem.key, message=message, remedy=problem.remedy)


def _no_allreduce(rehearsed: Rehearsed) -> Finding:
    remedy = "the ranks' own words, above, name the cause"
    if rehearsed.backend == "nccl":
        remedy = "set env.NCCL_P2P_DISABLE=1 and env.NCCL_DEBUG=INFO in the cluster file, or use a cpu_* mode"
    elif rehearsed.backend == "gloo":
        remedy = "see that nccl_socket_ifname names the network that the hosts share"
    return Finding(severity="error", host="", key="allreduce", message=rehearsed.trouble, remedy=remedy)


# -------------------------------------------------------------------------------------------------- the document


def _allreduce(done: Rehearsed | None) -> dict[str, Any] | None:
    if done is None or done.trouble:
        return None
    return {"backend": done.backend, "num_bytes": done.num_bytes, "ms": done.ms}


def _host(label: str, report: HostReport | None) -> dict[str, Any]:
    if report is None:
        return {"host": label, "reachable": False}
    found: dict[str, Any] = msgspec.to_builtins(report)
    nccl, data = found.pop("nccl"), found.pop("data")
    del found["missing_preloads"], found["missing_modules"]  # findings say so
    parts = [{name: copy[name] for name in _SHOWN_OF_DATA} for copy in data]
    return {
        **found,
        "host": label,
        "reachable": True,
        "nccl": nccl["version"],
        "nccl_path": nccl["path"],
        "nccl_is_preloaded": nccl["is_preloaded"],
        "data": parts,
    }


_SHOWN_OF_DATA = ("part", "path", "exists", "num_files", "num_bytes", "signature", "trouble")
