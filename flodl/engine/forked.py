"""An agent that is forked from the program: its ranks are the program's grandchildren, and hold what it holds.

It has to come about before flodl starts a thread here, so it waits for its marker. OpenMP's threads do not live on in a
forked process, and the next parallel operation would wait for them for ever (tried: torch 2.13, libgomp): they are
ended before, and start anew on both sides. Where that cannot be asked for, ranks compute in one thread each.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import IO, NoReturn, TextIO

from flodl.engine.lifeline import die_with_parent
from flodl.errors import HostUnready
from flodl.ports import HostCall

__all__ = ["ForkedAgent"]

POLL_SECONDS = 0.01
DROP_SECONDS = 5.0
OMP_PAUSE_HARD = 2
_programs_streams: list[TextIO | None] = []  # kept: where the last name of one goes, it would close our descriptors
_OPENMP = re.compile(r"/lib(gomp|omp|iomp5)[^/]*\.so")


class ForkedAgent:
    """`flodl.engine.session.AgentStreams` of such an agent; the program's main thread makes it. `open` hands it out."""

    def __init__(self) -> None:
        is_one_threaded = not _rest()
        program = os.getpid() if threading.current_thread() is threading.main_thread() else None
        sys.stdout.flush()
        sys.stderr.flush()
        orders, words, errors = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12, where the program has threads of its own
            self._pid = os.fork()
        if self._pid == 0:
            for fd in (orders[1], words[0], errors[0]):
                os.close(fd)
            _become_agent((orders[0], words[1], errors[1]), program, is_one_threaded)
        for fd in (orders[0], words[1], errors[1]):
            os.close(fd)
        self._stdin: IO[bytes] = os.fdopen(orders[1], "wb", buffering=0)
        self._stdout: IO[bytes] = os.fdopen(words[0], "rb")
        self._stderr: IO[bytes] = os.fdopen(errors[0], "rb")
        self._lock = threading.RLock()
        self._code: int | None = None
        self._is_out = False

    def open(self, call: HostCall, marker: str) -> ForkedAgent:
        """A fleet's transport for this machine; once. Raises HostUnready."""
        if self._is_out:
            raise HostUnready(call.label, "ended", "the agent that was forked from the program is gone")
        self._is_out = True
        with contextlib.suppress(OSError):  # its end is told by its streams
            self._stdin.write(marker.encode("ascii") + b"\n")
        return self

    def drop(self) -> None:
        """End it where nobody has asked for it. Idempotent."""
        if not self._is_out:
            self._is_out = True
            for stream in (self._stdin, self._stdout, self._stderr):
                stream.close()
            if self.wait(DROP_SECONDS) is None:
                self.kill()
                self.wait(DROP_SECONDS)

    @property
    def stdin(self) -> IO[bytes]:
        """What the agent reads."""
        return self._stdin

    @property
    def stdout(self) -> IO[bytes]:
        """What it says."""
        return self._stdout

    @property
    def stderr(self) -> IO[bytes]:
        """What it complains about."""
        return self._stderr

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code; None when it still runs."""
        end = time.monotonic() + timeout_seconds
        while (code := self._look()) is None and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return code

    def kill(self) -> None:
        """End it now."""
        with self._lock:
            if self._look() is None:
                os.kill(self._pid, signal.SIGKILL)

    def _look(self) -> int | None:
        """Several threads ask: one of them reaps it. Where the program reaps its children itself, nobody knows how it
        ended."""
        with self._lock:
            if self._code is None:
                try:
                    pid, status = os.waitpid(self._pid, os.WNOHANG)
                except ChildProcessError:
                    self._code = 0
                else:
                    self._code = os.waitstatus_to_exitcode(status) if pid else None
            return self._code


def _rest() -> bool:
    """End OpenMP's idle threads. False where there are threads that cannot be ended so."""
    found = {
        Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if _OPENMP.search(line)
    }
    pauses = [getattr(ctypes.CDLL(str(path)), "omp_pause_resource_all", None) for path in sorted(found)]
    return all(pause is not None and pause(OMP_PAUSE_HARD) == 0 for pause in pauses)


def _become_agent(descriptors: tuple[int, int, int], program: int | None, is_one_threaded: bool) -> NoReturn:
    """In the child, for good. program: dies with it (another fork of the program's may hold our input open); None: it
    was forked from a thread that may end before."""
    code = 70
    try:
        if program is not None:
            die_with_parent(program)
        os.setsid()
        for standard, descriptor in enumerate(descriptors):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        _own_streams()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        marker = _line(0)
        if marker:
            from flodl.engine import agent

            agent.main(marker, is_forked=True, is_one_threaded=is_one_threaded)
        code = 0
    finally:
        os._exit(code)


def _own_streams() -> None:
    """Words go where our descriptors lead. The program's own objects write elsewhere (a notebook's cell, a test's
    capture) or believe to be in a file (a log), which a pipe is not."""
    _programs_streams.extend([sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__])
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _writer(1)
    sys.stderr = sys.__stderr__ = _writer(2)


def _writer(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _line(descriptor: int) -> str:
    """One line, and not a byte more: what follows is the agent's. "" at the end."""
    found = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        found += byte
    return found.decode("ascii") if byte else ""
