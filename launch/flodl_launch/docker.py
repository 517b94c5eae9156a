"""A program of this machine as streams: `docker compose exec -T` above all, whose streams are its program's.

When the docker command is killed, the daemon closes the program's standard input: the agent ends itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from flodl.errors import HostUnready
from flodl.ports import HostCall

__all__ = ["ProcessStreams", "open_process"]


class ProcessStreams:
    """A subprocess as AgentStreams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code; None when it still runs."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it now, with its process group."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(OSError):
            self.stdin.close()


def open_process(call: HostCall, argv: Sequence[str]) -> ProcessStreams:
    """Start the command in the host's path, where there is such a folder: there the compose file lies, too."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=call.path if call.path and Path(call.path).is_dir() else None,
            env={name: value for name, value in os.environ.items() if name not in call.withheld},
            start_new_session=True,
        )
    except OSError as error:
        remedy = "install docker with its compose plugin, or leave docker: out" if call.spec.docker is not None else ""
        raise HostUnready(call.label, "ended", f"{argv[0]} does not start: {error.strerror}", remedy) from None
    return ProcessStreams(process)
