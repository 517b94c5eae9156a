"""One look at all hosts: meet them, ask each for its report and its clock, judge. The way in for every launch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flodl.errors import HostUnready
from flodl.ports import Errand, Fleet, Greeting, HostCall
from flodl.probe.compare import data_parts
from flodl.probe.finding import Finding, in_order, unready
from flodl.probe.judge import chosen_gpus, judge
from flodl.probe.project import named_modules
from flodl.probe.report import Gpu, HostReport, Question
from flodl.probe.software import distribution_version
from flodl.record.text import clean
from flodl.spec.job import JobSpec

__all__ = ["Looked", "look", "with_torch"]

REPORT_SECONDS = 20.0
TORCH_SECONDS = 120.0  # a first import from a cold disk
TORCH_POLL_SECONDS = 0.05
CLOCK_ASKS = 3
AT_ONCE = 32
PROGRAM = "flodl.probe.host"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What was seen, by host label. findings: errors first, each kind in the order of the cluster file; those of
    `unready` hosts, which could not be met or did not answer, are among them."""

    reports: dict[str, HostReport]
    findings: tuple[Finding, ...]
    unready: dict[str, HostUnready] = field(default_factory=dict[str, HostUnready])

    @property
    def counts(self) -> dict[str, int]:
        """Host -> GPUs that it lends."""
        return {host: len(report.gpus) for host, report in self.reports.items()}

    @property
    def gpus(self) -> dict[str, tuple[Gpu, ...]]:
        """Host -> the GPUs that it lends, as `local_devices` numbers them."""
        return {host: report.gpus for host, report in self.reports.items()}


def look(
    job: JobSpec,
    fleet: Fleet,
    calls: Sequence[HostCall],
    *,
    met: Mapping[str, Greeting | HostUnready] | None = None,
    is_gate: bool = True,
) -> Looked:
    """Look at the hosts of a job. met: what `fleet.meet(calls)` has answered; it is asked where that is not given.

    is_gate: where everything happens on this machine, its data folder is left to the ranks: they begin in a moment, and
    say more about what is missing.
    """
    met = fleet.meet(calls) if met is None else met
    parts = tuple(part for parts in data_parts(job.dataset) for part in parts)
    if is_gate and len(calls) == 1 and calls[0].here:
        parts = ()
    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(calls)))) as pool:
        asked = Question(data=parts, modules=named_modules(job, Path.cwd()))
        found = list(pool.map(lambda call: _ask(fleet, call, met[call.label], asked), calls))
    answers = {call.label: answer for call, answer in zip(calls, found, strict=True)}
    reports = {host: answer for host, answer in answers.items() if isinstance(answer, HostReport)}
    troubles = {host: answer for host, answer in answers.items() if isinstance(answer, HostUnready)}
    return _judged(job, reports, troubles)


def with_torch(
    job: JobSpec, fleet: Fleet, calls: Sequence[HostCall], seen: Looked, timeout_seconds: float = TORCH_SECONDS
) -> Looked:
    """What was seen, judged anew with what the warm processes have told about torch: waits until they have.

    Only hosts that lend GPUs to the job are waited for: for the others there is nothing to learn.
    """
    reports, troubles = dict(seen.reports), dict(seen.unready)
    end = time.monotonic() + timeout_seconds
    waiting = [c for c in calls if c.label in reports and chosen_gpus(job, reports[c.label])]
    while waiting and time.monotonic() < end:
        for call, greeting in [(call, fleet.meet([call])[call.label]) for call in waiting]:
            if isinstance(greeting, HostUnready):
                troubles[call.label] = greeting
                del reports[call.label]
                waiting.remove(call)
            elif greeting.torch:
                reports[call.label] = _with_facts(reports[call.label], greeting)
                waiting.remove(call)
        time.sleep(TORCH_POLL_SECONDS if waiting else 0.0)
    return _judged(job, reports, troubles)


def _judged(job: JobSpec, reports: dict[str, HostReport], troubles: dict[str, HostUnready]) -> Looked:
    findings = (*map(unready, troubles.values()), *judge(job, reports, distribution_version("flodl")))
    ordered = in_order(findings, [host.host for host in job.cluster.workers])
    return Looked(reports=reports, findings=ordered, unready=troubles)


def _ask(fleet: Fleet, call: HostCall, greeting: Greeting | HostUnready, asked: Question) -> HostReport | HostUnready:
    if isinstance(greeting, HostUnready):
        return greeting
    question = replace(
        asked,
        path=call.path,
        data_path=call.spec.data_path or "",
        preload=call.env.get("LD_PRELOAD", ""),
        library_path=call.env.get("LD_LIBRARY_PATH", ""),
    )
    try:
        errand = fleet.run(call.label, PROGRAM, msgspec.json.encode(question).decode())
    except HostUnready as error:
        return error
    try:
        return _told(_report(call.label, errand), errand, greeting)
    except HostUnready as error:
        return error
    finally:
        errand.end()


def _report(host: str, errand: Errand) -> HostReport:
    line = errand.line(REPORT_SECONDS)
    if line is None:
        code = errand.end()
        if code is None:
            raise HostUnready(
                host, "timeout", f"no report within {REPORT_SECONDS:g} s", "does a file system hang there?"
            )
        said = "".join(f"\n  | {clean(line)}" for line in errand.errors()[-3:])
        raise HostUnready(host, "protocol", f"the probe ended with exit code {code} and no report{said}")
    try:
        return msgspec.json.decode(line, type=HostReport)
    except (msgspec.MsgspecError, UnicodeError) as error:
        shown = clean(line)[:200]
        raise HostUnready(host, "protocol", f"a malformed answer ({error}): {shown!r}") from None


def _told(report: HostReport, errand: Errand, greeting: Greeting) -> HostReport:
    """The report, with what only the controller can know of the host."""
    offset, error = _clock(errand)
    known = replace(
        report,
        host=greeting.host,
        latency_ms=greeting.latency_ms or error * 2000,
        clock_offset_seconds=offset,
        clock_error_seconds=error,
        noise=tuple(clean(line) for line in greeting.noise),
    )
    return _with_facts(known, greeting)


def _with_facts(report: HostReport, greeting: Greeting) -> HostReport:
    """The report, with what the warm process says of the torch that it has loaded; it may not have got so far."""
    facts = greeting.torch
    archs = tuple(facts.get("archs", "").split())
    return replace(report, torch=facts.get("torch", report.torch), cuda=facts.get("cuda", report.cuda), archs=archs)


def _clock(errand: Errand) -> tuple[float, float]:
    """(offset, error) of the host's clock in seconds, by the quickest of some round trips.

    The host's answer was written somewhere in between, so half the round trip is what the offset may be wrong by.
    """
    best = (0.0, float("inf"))
    for _ in range(CLOCK_ASKS):
        before, begun = time.time(), time.perf_counter()
        errand.give("now")
        answer = errand.line(REPORT_SECONDS)
        took = time.perf_counter() - begun
        try:
            there = float(answer or "")
        except ValueError:
            continue
        if took / 2 < best[1]:
            best = (there - (before + took / 2), took / 2)
    return best if best[1] < float("inf") else (0.0, 0.0)
