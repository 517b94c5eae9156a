"""How an agent's warm process comes about: as a program of its own, or as a fork of the agent, which then is one of the
user's program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, Protocol

from flodl.engine.errands import Warm

__all__ = ["Begin", "Begun", "begin_forked", "begin_program"]

POLL_SECONDS = 0.002

# One thread for whatever is loaded, until a rank says how many it may have (`birth`): two torch threads beside one busy
# process cost a factor of ten, and nobody knows the number of ranks yet.
_SURROUNDINGS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "PYTHONUNBUFFERED": "1",
}


class Begun(Protocol):
    """A warm process, for its parent."""

    def kill(self) -> None: ...

    def wait(self) -> int: ...


Begin = Callable[[Warm, int, int], Begun]
"""(order, descriptor of its channel, descriptor of its output) -> the process. Raises OSError."""


def begin_program(order: Warm, channel: int, output: int) -> Begun:
    """A program of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "flodl.engine.warm", str(channel), str(os.getpid()), *order.preload],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=os.environ | _SURROUNDINGS | order.env,
        cwd=order.path or None,
        pass_fds=[channel],
    )


def begin_forked(order: Warm, channel: int, output: int) -> Begun:
    """A fork of this process, which has one thread."""
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_warm(order, channel, output, agent)
    return _Forked(pid)


class _Forked:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)  # its number is held until it was waited for

    def wait(self) -> int:
        while self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
            time.sleep(0.0 if pid else POLL_SECONDS)
        return self._code


def _become_warm(order: Warm, channel: int, output: int, agent: int) -> NoReturn:
    """In the child, for good."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for standard in (1, 2):
            os.dup2(output, standard)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.environ.update(_SURROUNDINGS | order.env)
        if order.path:
            os.chdir(order.path)
        from flodl.engine import warm

        warm.main(channel, agent, order.preload)
        code = 0
    except BaseException:  # noqa: BLE001  the last door: whatever it was is told and ends this process
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)
