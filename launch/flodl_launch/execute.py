"""The port `Execute`: any command on a host, every word of it as it is, its output line by line.

Meant for tasks that prepare hosts, so nothing of ours is needed there.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

import paramiko

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl_launch.beginning import AgentStreams, await_shell
from flodl_launch.command import docker_argv, line_for_shell
from flodl_launch.docker import open_process
from flodl_launch.ssh import log_in
from flodl_launch.streams import LINE_LOST, SshStreams

__all__ = ["execute"]

LINE_LIMIT_BYTES = 65536
LISTEN_SECONDS = 0.25  # short waits: a signal is heard in between
LAST_LINES_SECONDS = 2.0  # a process that the command left behind may hold its output open for ever


def execute(
    call: HostCall,
    argv: Sequence[str],
    *,
    given: bytes = b"",
    on_line: Callable[[str], None],
    timeout_seconds: float | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Run `argv` on a host; its exit code, negative for a signal. See flodl.ports.Execute. Raises HostUnready."""
    end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    stop = threading.Event() if stop is None else stop
    streams = _open(call, docker_argv(call.spec.docker, argv), stop)
    lock = threading.Lock()
    threads = [
        threading.Thread(target=_write, args=(streams.stdin, given), name="flodl-given", daemon=True),
        threading.Thread(target=_read, args=(streams.stdout, on_line, lock), name="flodl-output", daemon=True),
        threading.Thread(target=_read, args=(streams.stderr, on_line, lock), name="flodl-errors", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        code = _await(streams, end, stop)
    except BaseException:  # a signal to us ends the command too
        streams.kill()
        raise
    if code is None:
        streams.kill()
    for thread in threads[1:]:
        thread.join(LAST_LINES_SECONDS)
    streams.kill()  # what it has left behind keeps its line no longer
    if code is None and stop.is_set():
        raise _interrupted(call, argv)
    if code is None:
        raise HostUnready(call.label, "timeout", f"{argv[0]} did not end within {timeout_seconds:g} s, and was ended")
    if code == LINE_LOST and isinstance(streams, SshStreams) and streams.is_line_lost:
        raise HostUnready(call.label, "ended", f"the line was lost while {argv[0]} ran")
    return code


def _open(call: HostCall, argv: Sequence[str], stop: threading.Event) -> AgentStreams:
    if call.here:
        return open_process(call, argv)
    marker = f"flodl-{secrets.token_hex(8)}"
    login = log_in(call)
    if stop.is_set():
        login.close()
        raise _interrupted(call, argv)
    streams = SshStreams.start(call, login, line_for_shell(argv, marker, call.path, is_watched=True))
    return await_shell(call, streams, marker)


def _interrupted(call: HostCall, argv: Sequence[str]) -> HostUnready:
    return HostUnready(call.label, "ended", f"{argv[0]} was ended: interrupted")


def _await(streams: AgentStreams, end: float | None, stop: threading.Event) -> int | None:
    """Its exit code; None when the time is over, or it is to stop."""
    while True:
        left = LISTEN_SECONDS if end is None else min(LISTEN_SECONDS, end - time.monotonic())
        code = streams.wait(max(0.0, left))
        if code is not None or left <= 0 or stop.is_set():
            return code


def _write(stream: IO[bytes], given: bytes) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # a command need not read what it is given
        stream.write(given)
        stream.close()


def _read(stream: IO[bytes], on_line: Callable[[str], None], lock: threading.Lock) -> None:
    with contextlib.suppress(OSError, ValueError), stream:
        while line := stream.readline(LINE_LIMIT_BYTES):
            with lock:
                on_line(line.rstrip(b"\r\n").decode("utf-8", errors="replace"))
