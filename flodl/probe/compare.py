"""Judgement between hosts: data, torch, NCCL and GPUs that do not agree; and data that is missing. Pure.

A list of places in a data set's arguments (``folders: ["@data/mnist", "@data/MNIST/raw"]``) means alternatives: one of
them has to be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from flodl.probe.finding import Finding
from flodl.probe.report import DataCopy, Gpu, HostReport
from flodl.spec.component import Component
from flodl.spec.job import JobSpec
from flodl.spec.tree import strings

__all__ = ["data_parts", "differences", "nccl_agrees"]

DATA_MARK = "@data"


def differences(
    job: JobSpec, reports: Mapping[str, HostReport], chosen: Mapping[str, tuple[Gpu, ...]]
) -> Iterator[Finding]:
    """What does not agree between the hosts of a job, in their order. chosen: each host's GPUs that will train."""
    order = [host.host for host in job.cluster.workers if host.host in reports]
    ordered = {host: reports[host] for host in order}
    yield from _data(job, ordered)
    yield from _nccl(job, ordered, chosen)
    yield from _torch(ordered)
    yield from _generations(chosen, order)


def data_parts(dataset: Component) -> tuple[tuple[str, ...], ...]:
    """Parts of the data folder that a data set reads, alternatives together."""
    marked = [(key, text) for key, text in strings(dataset.args, "") if _is_marked(text)]
    groups = groupby(marked, key=lambda found: found[0].rpartition("[")[0] if found[0].endswith("]") else found[0])
    return tuple(tuple(text[len(DATA_MARK) + 1 :] for _, text in group) for _, group in groups)


def nccl_agrees(reports: Mapping[str, HostReport]) -> bool:
    """Whether NCCL of all hosts is of one major.minor, as a communicator demands."""
    return len({_major_minor(report.nccl.version) for report in reports.values()}) <= 1


def _is_marked(text: str) -> bool:
    return text == DATA_MARK or text.startswith(f"{DATA_MARK}/")


# ------------------------------------------------------------------------------------------------------------- data


def _data(job: JobSpec, reports: Mapping[str, HostReport]) -> Iterator[Finding]:
    keys = {host.host: f"cluster.workers[{i}].data_path" for i, host in enumerate(job.cluster.workers)}
    for parts in data_parts(job.dataset):
        first: tuple[str, DataCopy] | None = None
        for host, report in reports.items():
            copies = [copy for copy in report.data if copy.part in parts]
            there = next((copy for copy in copies if copy.exists), None)
            if not copies:  # nobody has looked
                continue
            if there is None or there.trouble:
                yield _unreadable(host, keys[host], copies, there)
            elif first is None:
                first = (host, there)
            else:
                yield from _unlike(host, keys[host], there, first)


def _unreadable(host: str, key: str, copies: list[DataCopy], there: DataCopy | None) -> Finding:
    if there is not None:
        return Finding(severity="error", host=host, key=key, message=f"the data cannot be read: {there.trouble}",
                       remedy="give the user that ranks run as the right to read it")  # fmt: skip
    looked = " or ".join(copy.path for copy in copies)
    return Finding(severity="error", host=host, key=key, message=f"there is no {looked}",
                   remedy="copy the data there, correct data_path:, or push it with deploy.data=rsync")  # fmt: skip


def _unlike(host: str, key: str, here: DataCopy, first: tuple[str, DataCopy]) -> Iterator[Finding]:
    other, there = first
    if here.names != there.names:
        message = f"{here.path} holds {_amount(here)}, and {there.path} on {other} {_amount(there)} by other names"
        yield Finding(severity="warning", host=host, key=key, message=message,
                      remedy="what the data set yields is compared before training begins")  # fmt: skip
        return
    changed = [name for name in here.ends if name in there.ends and here.ends[name] != there.ends[name]]
    if here.signature == there.signature and not changed:
        return
    which = f": {changed[0]} differs" if changed and changed[0] else ""
    message = f"{here.path} is not what {other} has in {there.path} ({_amount(here)}; {_amount(there)} there){which}"
    yield Finding(severity="error", host=host, key=key, message=message,
                  remedy="copy the data again, or push it with deploy.data=rsync")  # fmt: skip


def _amount(copy: DataCopy) -> str:
    files = "1 file" if copy.num_files == 1 else f"{copy.num_files:,} files"
    return f"{'more than ' if copy.is_partial else ''}{files} of {copy.num_bytes:,} bytes"


# --------------------------------------------------------------------------------------------------------- software


def _nccl(job: JobSpec, reports: Mapping[str, HostReport], chosen: Mapping[str, tuple[Gpu, ...]]) -> Iterator[Finding]:
    mode = job.elche.mode
    asked = {host: report for host, report in reports.items() if report.nccl.version and chosen.get(host)}
    if nccl_agrees(asked) or mode.startswith("cpu"):
        return
    versions = ", ".join(f"{report.nccl.version} on {host}" for host, report in asked.items())
    message = f"NCCL differs: {versions}; a group needs one major.minor"
    bridge = "task=nccl_build makes a library for LD_PRELOAD"
    if mode.startswith("nccl"):
        other = mode.replace("nccl", "cpu")
        yield Finding(severity="error", host="", key="nccl", message=message, remedy=f"{bridge}; or elche={other}")
    else:
        yield Finding(severity="warning", host="", key="nccl", message=message,
                      remedy=f"elche=auto averages over gloo (cpu_cadence); {bridge}")  # fmt: skip


def _torch(reports: Mapping[str, HostReport]) -> Iterator[Finding]:
    found = {host: report.torch for host, report in reports.items() if report.torch}
    if len({version.partition("+")[0] for version in found.values()}) > 1:
        listed = ", ".join(f"{version} on {host}" for host, version in found.items())
        yield Finding(severity="warning", host="", key="torch", message=f"torch differs: {listed}",
                      remedy="works over gloo: all ranks start from one rank's weights; results may differ in the "
                             "last digits")  # fmt: skip


def _generations(chosen: Mapping[str, tuple[Gpu, ...]], order: list[str]) -> Iterator[Finding]:
    found: dict[int, str] = {}
    for host in order:
        for gpu in chosen.get(host, ()):
            found.setdefault(gpu.capability[0], f"{gpu.name} ({gpu.capability[0]}.{gpu.capability[1]})")
    if len(found) > 1:
        listed = ", ".join(found[major] for major in sorted(found))
        yield Finding(severity="info", host="", key="gpu", message=f"GPUs of several generations: {listed}",
                      remedy="ElChe gives each as much as it can do")  # fmt: skip


def _major_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
