"""Small programs that an agent runs for the controller: modules under flodl.probe, without torch.

Each has its own input, and its output goes back line by line. They die with the agent.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from flodl.engine.errands import Ran, Run, Told
from flodl.engine.lifeline import die_with_parent
from flodl.engine.watch import Output, Watch

__all__ = ["Programs"]

ALLOWED = "flodl.probe."
LINE_BYTES = 1 << 20
KEPT_ERRORS = 20
REFUSED = 126


class Programs:
    """Those that run now, by the number that the controller gave them."""

    def __init__(self, watch: Watch, say: Callable[[Told | Ran], None]) -> None:
        self._watch = watch
        self._say = say
        self._running: dict[int, _Program] = {}

    def start(self, order: Run, folder: str) -> None:
        """Start one; what cannot be started has ended at once."""
        if not order.module.startswith(ALLOWED):
            self._say(Ran(id=order.id, code=REFUSED, errors=(f"{order.module} is no module under {ALLOWED[:-1]}",)))
            return
        try:
            self._running[order.id] = _Program(order, folder, self._watch, self._say, self._running)
        except OSError as error:
            self._say(Ran(id=order.id, code=REFUSED, errors=(str(error),)))

    def give(self, number: int, line: str | None) -> None:
        """One more line of input, None: no more. To a program that has ended it is lost."""
        if number in self._running:
            self._running[number].give(line)

    def drop(self, number: int) -> None:
        """End one now."""
        if number in self._running:
            self._running[number].kill()

    def end(self) -> None:
        """End all of them now; nothing more is said."""
        for program in self._running.values():
            program.kill()


class _Program:
    def __init__(
        self, order: Run, folder: str, watch: Watch, say: Callable[[Told | Ran], None], among: dict[int, _Program]
    ) -> None:
        self._id, self._watch, self._say, self._among = order.id, watch, say, among
        self._errors: deque[str] = deque(maxlen=KEPT_ERRORS)
        self._unwritten = bytearray(f"{order.given}\n".encode() if order.given else b"")
        self._is_input_over = False
        agent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", order.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder if folder and Path(folder).is_dir() else None,
            preexec_fn=lambda: die_with_parent(agent),  # noqa: PLW1509  the agent has one thread
        )
        self._input, out, err = (_taken(s) for s in (self._process.stdin, self._process.stdout, self._process.stderr))
        os.set_blocking(self._input, False)
        self._out = Output(watch, out, self._tell, LINE_BYTES)
        self._err = Output(watch, err, self._errors.append, LINE_BYTES)
        self._pidfd = os.pidfd_open(self._process.pid)
        watch.reading(self._pidfd, self._bury)
        if self._unwritten:
            watch.writing(self._input, self._write)

    def give(self, line: str | None) -> None:
        if self._input < 0 or self._is_input_over:
            return
        was_idle = not self._unwritten
        if line is None:
            self._is_input_over = True
        else:
            self._unwritten += f"{line}\n".encode()
        if was_idle:
            self._watch.writing(self._input, self._write)

    def kill(self) -> None:
        self._process.kill()

    def _write(self) -> None:
        try:
            if self._unwritten:
                del self._unwritten[: os.write(self._input, self._unwritten)]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._close_input()
            return
        if not self._unwritten:
            self._watch.forget(self._input)
            if self._is_input_over:
                self._close_input()

    def _close_input(self) -> None:
        if self._input >= 0:
            self._watch.forget(self._input)
            os.close(self._input)
            self._input = -1

    def _tell(self, line: str) -> None:
        self._say(Told(id=self._id, line=line))

    def _bury(self) -> None:
        self._watch.forget(self._pidfd)
        os.close(self._pidfd)
        self._close_input()
        code = self._process.wait()
        self._out.close()
        self._err.close()
        with contextlib.suppress(KeyError):
            del self._among[self._id]
        self._say(Ran(id=self._id, code=code, errors=tuple(self._errors)))


def _taken(stream: IO[bytes] | None) -> int:
    """Its descriptor, as a copy of our own: the file object is done with."""
    assert stream is not None
    with stream:
        return os.dup(stream.fileno())
