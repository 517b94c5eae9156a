"""An agent on this machine: a subprocess in a session of its own, so that a terminal's Ctrl-C reaches the controller
alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from flodl.errors import HostUnready
from flodl.ports import HostCall

__all__ = ["LocalStreams"]


class LocalStreams:
    """One agent as a subprocess. Raises HostUnready where its interpreter does not start."""

    def __init__(self, call: HostCall, marker: str) -> None:
        env = {name: value for name, value in os.environ.items() if name not in call.withheld}
        if not call.python:  # our own interpreter finds our own flodl, also from a checkout that is not installed
            root = str(Path(__file__).resolve().parents[2])
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH", ""))))
        python = call.python or sys.executable
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "flodl.engine.agent", marker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise HostUnready(
                call.label, "no_python", f"{python} does not start: {reason}", "`python:` or `arch:` names another one"
            ) from None

    @property
    def stdin(self) -> IO[bytes]:
        """What the agent reads."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """What it says."""
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        """What it complains about."""
        assert self._process.stderr is not None
        return self._process.stderr

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code; None when it still runs."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
