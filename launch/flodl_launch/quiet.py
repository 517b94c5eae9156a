"""ssh for rsync, whose protocol bears no word of a login shell: what comes before the marker is dropped.

    python quiet.py MARKER CONFIG HOST COMMAND...

A program of its own that imports nothing of ours. Only what comes from the host passes through it; what goes there is
read by ssh itself.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["main", "remote_shell"]

READ_BYTES = 1 << 16
OUTPUT = 1


def remote_shell(marker: str, config: str) -> str:
    """What rsync's -e is given: it splits at blanks, and a quote within quotes is written twice."""
    words = [sys.executable, "-I", "-S", __file__, marker, config]
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def main(arguments: Sequence[str]) -> int:
    """Run the command there; its exit code."""
    marker, config, host, *command = arguments
    line = f"echo {shlex.quote(marker)}; {' '.join(command)}"
    with subprocess.Popen(["ssh", "-F", config, host, line], stdout=subprocess.PIPE) as ssh:
        assert ssh.stdout is not None
        source = ssh.stdout.fileno()
        try:
            _write(_after(source, marker.encode() + b"\n"))
            while data := os.read(source, READ_BYTES):
                _write(data)
        except BrokenPipeError:
            ssh.kill()  # rsync is gone
    return ssh.returncode


def _after(source: int, marker: bytes) -> bytes:
    """What was read behind the marker."""
    heard = b""
    while data := os.read(source, READ_BYTES):
        _, found, rest = (heard + data).partition(marker)
        if found:
            return rest
        heard = (heard + data)[-len(marker) :]
    return b""


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(OUTPUT, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
