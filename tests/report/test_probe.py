"""What a probe has found, as a person sees it."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from rich.console import Console

from flodl.report.probe import findings_text, print_probe


class Found(NamedTuple):
    severity: str
    host: str
    key: str
    message: str
    remedy: str = ""


GPU = {"name": "RTX 5060 Ti", "memory_total_bytes": 16 << 30}
HOST: dict[str, Any] = {
    "host": "node-a",
    "reachable": True,
    "gpus": [GPU],
    "cores": 8,
    "torch": "2.13.0+cu130",
    "nccl": "2.27.5",
    "flodl": "0.1.0",
    "memory_free_bytes": 30 << 30,
    "memory_total_bytes": 32 << 30,
    "disk_free_bytes": 99 << 30,
    "interfaces": [
        {"name": "lo", "is_up": True, "addresses": ["127.0.0.1"]},
        {"name": "eth0", "is_up": True, "addresses": ["10.0.0.1"]},
    ],
    "latency_ms": 1.25,
    "clock_offset_seconds": -0.002,
}
PAIR = {"source": "node-a", "target": "node-b", "latency_ms": 0.123, "bytes_per_second": 1.2e8}
CLOSED = Found("error", "node-b", "firewall", "cannot be reached [bold]now[/bold]\n  | \x1b[31mwhy", "let it in")


def shown(**document: Any) -> str:
    paper = io.StringIO()
    whole = {"hosts": [HOST], "pairs": [], "allreduce": None, "findings": [], "exit_code": 0, **document}
    print_probe(whole, Console(file=paper, width=160, markup=False, emoji=False, highlight=False))
    return paper.getvalue()


def test_a_host_is_a_line_with_what_matters() -> None:
    text = shown()
    for word in (
        "node-a",
        "RTX 5060 Ti 16 GiB, 8 cores",
        "2.27.5",
        "30.0 of 32.0 GiB",
        "eth0 10.0.0.1",
        "1.2 ms",
        "-0.002 s",
    ):
        assert word in text
    assert "127.0.0.1" not in text
    assert text.endswith("\nready: 1 host\n")


def test_pairs_and_the_all_reduce_are_shown_with_their_units() -> None:
    text = shown(pairs=[PAIR], allreduce={"backend": "gloo", "num_bytes": 1 << 20, "ms": 3.456})
    assert "0.12 ms" in text
    assert "120 MB/s" in text
    assert "all-reduce of 1 MiB over gloo: 3.46 ms" in text


def test_findings_stand_in_one_table_and_the_verdict_counts_them() -> None:
    warning = Found("warning", "", "torch", "torch differs")
    text = shown(hosts=[{"host": "node-b", "reachable": False}], findings=[f._asdict() for f in (CLOSED, warning)])
    assert "not reachable" in text
    assert "-> let it in" in text
    assert text.endswith("\nnot ready: 1 error, 1 warning\n")
    assert shown(findings=[warning._asdict()] * 2).endswith("\nready: 1 host, 2 warnings\n")


def test_text_of_hosts_is_no_markup_and_moves_no_cursor() -> None:
    text = findings_text([CLOSED])
    assert "[bold]now[/bold]" in text
    assert "\x1b" not in text
    assert "| why" in text


def test_the_table_of_an_error_is_plain_and_no_wider_than_asked() -> None:
    long = Found("error", "node-with-a-name", "cluster.workers[11].nccl_socket_ifname", "word " * 60, "remedy " * 30)
    lines = findings_text([long, CLOSED], 100).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("word" in line for line in lines) > 1
    assert [line.split()[0] for line in lines if line.startswith("error")] == ["error", "error"]
