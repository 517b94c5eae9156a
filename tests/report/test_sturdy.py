"""A run's display goes on in silence where nobody reads."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from flodl.report.sturdy import Sturdy

SCRIPT = """
import time
from flodl.report.terminal import terminal_console
console = terminal_console()
for number in range(4000):
    console.print(f"line {number} \u00b7")
raise SystemExit(7)
"""


def ended(redirection: str, **environment: str) -> int:
    """Exit code of a program that prints much to a console whose standard output is redirected by the shell."""
    line = f'"$0" -c "$1" {redirection}; exit $?'
    done = subprocess.run(
        ["bash", "-c", line, sys.executable, SCRIPT],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
    return done.returncode


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "> >(true)", "> >(head -1)"])
def test_whatever_becomes_of_the_output_the_program_goes_on_to_its_own_end(redirection: str) -> None:
    assert ended(redirection) == 7


def test_letters_that_the_terminal_lacks_become_question_marks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    Sturdy(stream).write("64 \u00b7 1")
    assert raw.getvalue() == b"64 ? 1"
    assert ended("", PYTHONIOENCODING="ascii") == 7


def test_a_stream_that_is_closed_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    sturdy = Sturdy(stream)
    sturdy.write("x")
    sturdy.flush()
    assert not sturdy.isatty()
