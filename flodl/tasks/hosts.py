"""Commands on the hosts of a cluster, for tasks that prepare them: nothing of flodl needs to be there yet.

This machine gets a subprocess, every other host whatever `launch.execute` names. Hosts are asked side by side, a few at
a time; what a host answers is a value, and so is its trouble, so that all hosts' troubles are told together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from flodl.errors import HostUnready, TaskFindings
from flodl.ports import Execute, HostCall
from flodl.probe.here import is_here
from flodl.record.text import clean
from flodl.spec.component import Component
from flodl.spec.job import JobSpec

__all__ = ["AT_ONCE", "Host", "ask", "each", "execute_here", "hosts_of"]

END_SECONDS = 6.0  # for what an interrupted command has running on the hosts
AT_ONCE = 8  # default sshd drops logins beyond ten that are under way
CHUNK_BYTES = 1 << 16
_T = TypeVar("_T")


class Host:
    """One host, and the way to it. `say`: prints a line with the host's name before it. `stop`: once it is set, what
    runs there is ended, and nothing more is run."""

    def __init__(self, call: HostCall, execute: Execute) -> None:
        self.call = call
        self.spec = call.spec
        self.label = call.label
        self.python = call.python or sys.executable
        self.path = call.path
        self.stop = threading.Event()
        self._execute = execute

    def run(
        self,
        argv: Sequence[str],
        *,
        given: bytes = b"",
        timeout_seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> int:
        """The exit code. on_line: `say` where it is not given. Raises HostUnready where the host cannot be reached."""
        if self.stop.is_set():
            raise HostUnready(self.label, "ended", f"{argv[0]} was not run: interrupted")
        heard = self.say if on_line is None else on_line
        return self._execute(
            self.call, argv, given=given, on_line=heard, timeout_seconds=timeout_seconds, stop=self.stop
        )

    def say(self, text: str) -> None:
        """A line for the person, in one piece."""
        with _SAYING:
            sys.stdout.write(f"[{self.label}] {clean(text)}\n")
            sys.stdout.flush()


def hosts_of(job: JobSpec) -> list[Host]:
    """The job's hosts, in order. Raises ConfigError where `launch.execute` names what may not be called."""
    from flodl.engine.launches import host_calls  # with it comes ZeroMQ, which no dry run needs

    here = frozenset(spec.host for spec in job.cluster.workers if is_here(spec))
    calls = host_calls(job, here)
    is_far = any(not call.here or call.spec.docker is not None for call in calls)
    elsewhere = _named(job) if is_far else execute_here
    return [Host(call, elsewhere if not call.here or call.spec.docker is not None else execute_here) for call in calls]


def ask(host: Host, argv: Sequence[str], timeout_seconds: float) -> tuple[int, list[str]]:
    """(exit code, lines) of a short question to a host."""
    lines: list[str] = []
    code = host.run(argv, timeout_seconds=timeout_seconds, on_line=lines.append)
    return code, lines


def each(hosts: Iterable[Host], do: Callable[[Host], _T]) -> dict[str, _T]:
    """`do` on every host, side by side. Raises TaskFindings with the troubles of all hosts where any has one."""
    done: dict[str, _T] = {}
    troubles: dict[str, Exception] = {}
    free = threading.Semaphore(AT_ONCE)

    def one(host: Host) -> None:
        with free:
            try:
                done[host.label] = do(host)
            except Exception as error:  # noqa: BLE001 - told, or raised again, by the thread that waits
                troubles[host.label] = error

    everyone = list(hosts)
    # Daemons: a host that does not answer cannot hold up an interrupted command for long.
    threads = [threading.Thread(target=one, args=(host,), daemon=True, name=f"host {host.label}") for host in everyone]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        _end(everyone, threads)
        raise
    in_order = [troubles[host.label] for host in everyone if host.label in troubles]
    for error in in_order:
        if not isinstance(error, HostUnready | TaskFindings):
            raise error
    if in_order:
        raise TaskFindings("\n".join(str(error) for error in in_order))
    return {host.label: done[host.label] for host in everyone}


def _end(hosts: Sequence[Host], threads: Sequence[threading.Thread]) -> None:
    """End what runs on these hosts, and see to it for a few seconds: whoever asked for the end waits for it."""
    for host in hosts:
        host.stop.set()
    _own.end()
    end = time.monotonic() + END_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def execute_here(
    call: HostCall,
    argv: Sequence[str],
    *,
    given: bytes = b"",
    on_line: Callable[[str], None],
    timeout_seconds: float | None = None,
    stop: threading.Event | None = None,
) -> int:
    """The port `Execute` for this machine. The command leads a group of its own, which is ended when time is up."""
    folder = call.path if call.path and Path(call.path).is_dir() else None
    try:
        process = subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   cwd=folder, start_new_session=True)  # fmt: skip
    except OSError as error:
        on_line(f"{argv[0]}: {error.strerror}")
        return 127
    _own.add(process)
    if stop is not None and stop.is_set():  # it was set between the last look and now
        _own.end(process)
    timer = threading.Timer(timeout_seconds or threading.TIMEOUT_MAX, _own.end, args=(process,))
    timer.daemon = True
    timer.start()
    feeder = threading.Thread(target=_feed, args=(process, given), daemon=True)
    feeder.start()
    try:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                on_line(line.decode("utf-8", "replace").rstrip("\r\n"))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its number stays its own until `forget`
    finally:
        timer.cancel()
        was_ended = _own.forget(process)
        feeder.join()
    if was_ended and timeout_seconds is not None:
        raise HostUnready(call.label, "timeout", f"{argv[0]} took longer than {timeout_seconds:g} s and was ended")
    return process.returncode


class _Own:
    """The commands that this process has started on this machine, so that none outlives it or its time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended: set[subprocess.Popen[bytes]] = set()

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.add(process)

    def end(self, *processes: subprocess.Popen[bytes]) -> None:
        """End these commands, or all: with everything in their groups."""
        with self._lock:
            for process in self._running & set(processes) if processes else set(self._running):
                self._ended.add(process)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def forget(self, process: subprocess.Popen[bytes]) -> bool:
        """It is over, or whoever listened to it gave up, and it is ended. True where its time had run out."""
        with self._lock:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._running.discard(process)
            was_ended = process in self._ended
            self._ended.discard(process)
        return was_ended


_own = _Own()
_SAYING = threading.Lock()


def _feed(process: subprocess.Popen[bytes], given: bytes) -> None:
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            stdin.write(given)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it reads no input, or has ended


def _named(job: JobSpec) -> Execute:
    from flodl.engine.trust import Trust, checked

    trust = Trust(job.trusted_targets, Path.cwd())
    tree = checked({"launch.execute": Component(target=job.launch.execute)}, trust)
    found: Execute = tree["launch.execute"]["_target_"]
    return found
