"""Programs for hosts that have no flodl yet: a file of the standard library alone, sent over standard input.

Such a file (`host_*.py` in this room) reads one JSON document from its command line, prints lines for people, and
answers with one line behind a mark. Nothing secret is in the document.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flodl.errors import TaskFindings
from flodl.tasks.hosts import Host

__all__ = ["ANSWER", "PYTHON3", "send"]

ANSWER = "flodl-answer: "
# A shell's first interpreter that is new enough; `exec` keeps its exit code ours. The program follows on its input.
PYTHON3 = (
    "for p in python3.13 python3.12 python3.11 python3 python3.14; do "
    "if command -v $p > /dev/null && $p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; "
    'then exec $p - "$@"; fi; done; echo "no python of 3.11 or newer on PATH" >&2; exit 127'
)


def send(
    host: Host,
    name: str,
    given: Mapping[str, Any],
    *,
    python: str = "",
    timeout_seconds: float | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run `host_<name>.py` on a host; its answer. python: with this interpreter; "" : with any of the system's.

    Raises TaskFindings with its last words where it gives none. quiet: its lines are not shown.
    """
    answers: list[dict[str, Any]] = []
    said: list[str] = []
    document = msgspec.json.encode(given).decode()
    argv: Sequence[str] = [python, "-", document] if python else ["sh", "-c", PYTHON3, "sh", document]
    heard = _listener(host, answers, said, quiet=quiet)
    code = host.run(argv, given=_source(name), timeout_seconds=timeout_seconds, on_line=heard)
    if code != 0 or not answers:
        last = "\n".join(f"  {line}" for line in said[-5:])
        raise TaskFindings(f"{host.label}: ended with {code}" + (f":\n{last}" if last else ""))
    return answers[-1]


def _listener(host: Host, answers: list[dict[str, Any]], said: list[str], *, quiet: bool) -> Callable[[str], None]:
    def heard(line: str) -> None:
        if line.startswith(ANSWER):
            answers.append(msgspec.json.decode(line.removeprefix(ANSWER)))
            return
        said.append(line)
        if not quiet:
            host.say(line)

    return heard


def _source(name: str) -> bytes:
    spec = importlib.util.find_spec(f"flodl.tasks.host_{name}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()
