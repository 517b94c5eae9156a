"""What a probe has found, for people: the hosts, what is wrong and what to do about it, how fast they reach each other.

It draws the document that ``json=true`` prints, so both say the same. Text from hosts is never
read as markup.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flodl.record.text import clean

__all__ = ["Told", "findings_table", "findings_text", "print_probe"]

GIB = 1 << 30
STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}
TEXT_WIDTH = 120


class Told(Protocol):
    """A finding."""

    @property
    def severity(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def remedy(self) -> str: ...


Cells = tuple[str, str, str, str, str]


def print_probe(document: Mapping[str, Any], console: Console) -> None:
    """Everything, the verdict last."""
    hosts = cast("list[dict[str, Any]]", document["hosts"])
    console.print(_hosts_table(hosts))
    pairs = cast("list[dict[str, Any]]", document["pairs"])
    if pairs:
        console.print()
        console.print(_pairs_table(pairs))
    allreduce = cast("dict[str, Any] | None", document["allreduce"])
    if allreduce is not None:
        size = int(allreduce["num_bytes"]) / (1 << 20)
        console.print()
        console.print(Text(f"all-reduce of {size:.0f} MiB over {allreduce['backend']}: {allreduce['ms']:.2f} ms"))
    findings = cast("list[dict[str, str]]", document["findings"])
    if findings:
        console.print()
        console.print(_table([_cells(found) for found in findings]))
    console.print()
    console.print(_verdict(hosts, findings))


def findings_table(findings: Iterable[Told]) -> Table:
    """One row per finding: how serious, host, key, what is the case and what to do about it."""
    return _table([(f.severity, f.host, f.key, f.message, f.remedy) for f in findings])


def findings_text(findings: Iterable[Told], width: int = TEXT_WIDTH) -> str:
    """The same table as plain text, for an error's message."""
    paper = io.StringIO()
    Console(file=paper, width=width, markup=False, emoji=False, highlight=False, no_color=True).print(
        findings_table(findings)
    )
    return "\n".join(line.rstrip() for line in paper.getvalue().rstrip().splitlines())


def _table(rows: Sequence[Cells]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column("host", overflow="fold")
    table.add_column("key", overflow="fold")
    table.add_column("what is the case, and what to do", overflow="fold", ratio=1)
    for severity, host, key, message, remedy in rows:
        said = Text("\n".join(clean(line) for line in message.splitlines()) or "-")
        if remedy:
            said.append(f"\n-> {clean(remedy)}", style="dim" if severity == "info" else "")
        table.add_row(
            Text(severity, style=STYLES.get(severity, "")), Text(clean(host) or "all"), Text(clean(key)), said
        )
    return table


def _cells(found: Mapping[str, str]) -> Cells:
    return found["severity"], found["host"], found["key"], found["message"], found["remedy"]


# ------------------------------------------------------------------------------------------------------------ hosts


def _hosts_table(hosts: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("host", "devices", "torch", "NCCL", "flodl", "memory free", "disk free", "address", "ping", "clock"):
        table.add_column(name, overflow="fold")
    for host in hosts:
        cells = _host_cells(host) if host["reachable"] else (str(host["host"]), "not reachable")
        style = "" if host["reachable"] else "red"
        table.add_row(*(Text(clean(cell), style=style) for cell in cells))
    return table


def _host_cells(host: Mapping[str, Any]) -> tuple[str, ...]:
    devices = [f"{gpu['name']} {gpu['memory_total_bytes'] / GIB:.0f} GiB" for gpu in host["gpus"]]
    return (
        str(host["host"]),
        ", ".join([*devices, f"{host['cores']} cores"]),
        str(host["torch"]) or "none",
        str(host["nccl"]) or "-",
        str(host["flodl"]) or "-",
        f"{host['memory_free_bytes'] / GIB:.1f} of {host['memory_total_bytes'] / GIB:.1f} GiB",
        f"{host['disk_free_bytes'] / GIB:.1f} GiB",
        _address(host["interfaces"]),
        f"{host['latency_ms']:.1f} ms",
        f"{host['clock_offset_seconds']:+.3f} s",
    )


def _address(interfaces: Sequence[Mapping[str, Any]]) -> str:
    """Those that reach other hosts."""
    found = [
        f"{i['name']} {i['addresses'][0]}" for i in interfaces if i["is_up"] and i["addresses"] and i["name"] != "lo"
    ]
    return ", ".join(found) or "-"


def _pairs_table(pairs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("from", "to", "round trip", "bandwidth"):
        table.add_column(name, justify="right" if name in ("round trip", "bandwidth") else "left")
    for pair in pairs:
        rate = f"{pair['bytes_per_second'] / 1e6:,.0f} MB/s"
        table.add_row(
            *(Text(clean(str(c))) for c in (pair["source"], pair["target"], f"{pair['latency_ms']:.2f} ms", rate))
        )
    return table


def _verdict(hosts: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, str]]) -> Text:
    errors = sum(found["severity"] == "error" for found in findings)
    warnings = sum(found["severity"] == "warning" for found in findings)
    told = [f"{count} {word}{'s' * (count > 1)}" for count, word in ((errors, "error"), (warnings, "warning")) if count]
    count = f"{len(hosts)} host{'s' * (len(hosts) > 1)}"
    if errors:
        return Text(f"not ready: {', '.join(told)}", style=STYLES["error"])
    return Text(f"ready: {count}" + (f", {told[0]}" if told else ""), style="bold green")
