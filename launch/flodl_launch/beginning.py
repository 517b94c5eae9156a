"""Until a program on a host has begun: what a login shell prints, and why it may never come to it."""

from __future__ import annotations

import io
import re
import signal
import sys
import threading
from typing import IO, Protocol

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl_launch.channel import StreamReader
from flodl_launch.command import AGENT, begun_word
from flodl_launch.streams import SshStreams

__all__ = ["AgentStreams", "await_agent", "await_shell"]

BEGIN_SECONDS = 20.0  # an interpreter from a cold disk
KEPT_LINES = 5
READ_BYTES = 65536
NOISE_LIMIT_BYTES = 1 << 20
CANNOT_START = (126, 127)  # what shells answer for a program that is not there, or is none
MISSING = re.compile(r"No module named '?(\w+)")
TOO_OLD = re.compile(r"nknown option:? -P")
NO_DOCKER = re.compile(r"docker: (command )?not found")
DOCKERS = re.compile(r"docker|service|container|configuration file", re.IGNORECASE)


class AgentStreams(Protocol):
    """A running program: its standard streams, and how to end and await it."""

    @property
    def stdin(self) -> IO[bytes]: ...
    @property
    def stdout(self) -> IO[bytes]: ...
    @property
    def stderr(self) -> IO[bytes]: ...

    def wait(self, timeout_seconds: float) -> int | None: ...

    def kill(self) -> None: ...


class _Begun:
    """The same streams, with what was read of standard output put back."""

    def __init__(self, streams: AgentStreams, ahead: bytes) -> None:
        self._streams = streams
        self.stdin = streams.stdin
        self.stdout = io.BufferedReader(StreamReader(self._read, streams.stdout.close, ahead))
        self.stderr = streams.stderr
        self.wait = streams.wait
        self.kill = streams.kill

    def _read(self, limit: int) -> bytes:
        return self._streams.stdout.read1(limit)  # type: ignore[attr-defined]


class _Listening:
    """Reads standard output until something is in it, in a thread of its own: a pipe or a channel knows no deadline."""

    def __init__(self, streams: AgentStreams, sought: re.Pattern[bytes]) -> None:
        self.heard = b""
        self.errors = b""
        self.has_found = False
        self._streams = streams
        self._sought = sought
        self._thread = threading.Thread(target=self._listen, name="flodl-begin", daemon=True)
        self._thread.start()
        self._thread.join(BEGIN_SECONDS)
        self.is_over = not self._thread.is_alive()

    def _listen(self) -> None:
        while len(self.heard) < NOISE_LIMIT_BYTES:
            data = self._streams.stdout.read1(READ_BYTES)  # type: ignore[attr-defined]
            self.heard += data
            if self._sought.search(self.heard):
                self.has_found = True
                return
            if not data:
                self.errors = self._streams.stderr.read(NOISE_LIMIT_BYTES)
                self._streams.wait(1.0)
                self._streams.stdout.close()
                self._streams.stderr.close()
                return


def await_agent(call: HostCall, streams: AgentStreams, marker: str) -> AgentStreams:
    """Wait for the agent's marker. What is read up to it can be read again. Raises HostUnready."""
    return _await(call, streams, marker, re.compile(b"(^|\n)" + marker.encode("ascii") + b"\n"))


def await_shell(call: HostCall, streams: AgentStreams, marker: str) -> AgentStreams:
    """Wait until a login shell has come to our line; what is read from then on is the command's. Raises HostUnready."""
    return _await(call, streams, marker, _word(marker))


def _await(call: HostCall, streams: AgentStreams, marker: str, sought: re.Pattern[bytes]) -> AgentStreams:
    listening = _Listening(streams, sought)
    noise, process, rest = _parted(listening.heard, marker)
    if isinstance(streams, SshStreams):
        streams.process = process
    if listening.has_found:
        return _Begun(streams, rest if sought == _word(marker) else noise + rest)
    code = streams.wait(0.0) if listening.is_over else None
    streams.kill()
    lines = _lines(noise + rest + listening.errors)
    is_ours = call.here or process[0] > 0
    if not listening.is_over or len(listening.heard) >= NOISE_LIMIT_BYTES:
        raise _late(call, lines, is_ours=is_ours)
    raise _program(call, code, lines) if is_ours else _shell(call, code, lines)


def _word(marker: str) -> re.Pattern[bytes]:
    return re.compile(begun_word(marker).encode("ascii") + rb" (\d+) ?(\d*)\n")


def _parted(heard: bytes, marker: str) -> tuple[bytes, tuple[int, int], bytes]:
    """Login noise, number and start time of the process that took over from the login shell (0: it never did), rest.

    Noise that ends without a newline gets one: the marker has a line of its own.
    """
    said = _word(marker).search(heard)
    if said is None:
        return heard, (0, 0), b""
    noise = heard[: said.start()]
    gap = b"\n" if noise and not noise.endswith(b"\n") else b""
    return noise + gap, (int(said[1]), int(said[2] or 0)), heard[said.end() :]


def _lines(output: bytes) -> tuple[str, ...]:
    lines = (line.strip() for line in output.decode("utf-8", errors="backslashreplace").splitlines())
    return tuple(line for line in lines if line)[-KEPT_LINES:]


def _late(call: HostCall, lines: tuple[str, ...], *, is_ours: bool) -> HostUnready:
    who = _python(call) if is_ours else "its login shell"
    return HostUnready(call.label, "timeout", f"logged in, but {who} did not begin within {BEGIN_SECONDS:g} s",
                       "a slow disk, or a ~/.bashrc that waits for something", lines)  # fmt: skip


def _shell(call: HostCall, code: int | None, lines: tuple[str, ...]) -> HostUnready:
    return HostUnready(call.label, "login_shell", f"login shell ended with {_code(code)} before our program began",
                       "nothing in ~/.bashrc and the like may end a shell that is not interactive", lines)  # fmt: skip


def _program(call: HostCall, code: int | None, lines: tuple[str, ...]) -> HostUnready:
    python, told = _python(call), "\n".join(lines)
    missing = MISSING.search(told)
    is_dockers = NO_DOCKER.search(told) or (DOCKERS.search(told) and code not in CANNOT_START and not missing)
    if call.spec.docker is not None and is_dockers:
        return HostUnready(call.label, "ended", f"docker compose exec {call.spec.docker} failed",
                           "is the service up, and the compose file in `path` of that host?", lines)  # fmt: skip
    if code in CANNOT_START:
        return HostUnready(call.label, "no_python", f"there is no interpreter {python}",
                           "set python: or arch: for this host, or make one with task=setup", lines)  # fmt: skip
    if TOO_OLD.search(told):
        return HostUnready(call.label, "no_python", f"{python} is older than Python 3.11",
                           "set python: to a newer one, or make one with task=setup", lines)  # fmt: skip
    if missing:
        what = "no flodl" if missing[1] == "flodl" else f"no {missing[1]}, which flodl needs"
        return HostUnready(call.label, "no_flodl", f"{python} has {what}",
                           f"`{python} -m pip install flodl` on that host, or task=setup", lines)  # fmt: skip
    return HostUnready(call.label, "ended", f"its agent ended with {_code(code)} before it began",
                       f"try `{python} -c 'import {AGENT}'` on that host", lines)  # fmt: skip


def _python(call: HostCall) -> str:
    return call.python or sys.executable


def _code(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return "no exit code" if code is None else str(code)
