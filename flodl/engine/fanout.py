"""Processes on this machine, through the same agent that serves other hosts over SSH.

`AgentFanOut` is the port; how an agent's streams come about is a function that it is given. `local_streams` is the one
for this machine: a subprocess in a session of its own, so that a terminal's Ctrl-C reaches the controller alone.
"""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import IO

from flodl.engine.errands import Signal, Start, Stop, Warm
from flodl.engine.session import AgentStreams, Session
from flodl.errors import NotReady
from flodl.ports import HostLaunch, HostNotice

__all__ = ["AgentFanOut", "LocalFanOut", "LocalStreams"]

FACTS_SECONDS = 20.0
STARTED_SECONDS = 120.0  # a first import of torch from a cold disk
LAST_SECONDS = 2.0

OpenStreams = Callable[[HostLaunch, str], AgentStreams]


class AgentFanOut:
    """FanOut over agents. open_streams(host, marker) starts one agent and returns its streams; it raises NotReady."""

    def __init__(self, open_streams: OpenStreams) -> None:
        self._open = open_streams
        self._notices: queue.SimpleQueue[HostNotice] = queue.SimpleQueue()
        self._sessions: list[Session] = []
        self._lock = threading.Lock()
        self._closed = False

    def start(self, hosts: Sequence[HostLaunch]) -> None:
        """Start one agent per host and one process per device. All or nothing: raises NotReady with every cause."""
        opened: list[tuple[HostLaunch, Session]] = []
        for host in hosts:
            session = self._begin(host)
            opened.append((host, session))
            session.order(Warm(env=host.env, threads=host.threads, path=host.path, preload=host.preload))
        self._refuse(_each(session.await_facts for _, session in opened)(FACTS_SECONDS))
        for host, session in opened:  # nothing touches a device before all hosts have answered
            session.order(Start(ranks=host.ranks, devices=host.devices, secret=host.secret))
        self._refuse(_each(session.await_started for _, session in opened)(STARTED_SECONDS))

    def poll(self, timeout_seconds: float) -> tuple[HostNotice, ...]:
        """What the agents said since the last call; waits for the first of it."""
        found: list[HostNotice] = []
        try:
            found.append(self._notices.get(timeout=timeout_seconds))
            while True:
                found.append(self._notices.get_nowait())
        except queue.Empty:
            return tuple(found)

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to one rank's process group; a rank that is gone is no error."""
        for session in self._sessions:
            if rank in session.ranks:
                session.order(Signal(rank=rank, number=number))

    def close(self, grace_seconds: float) -> None:
        """End every rank and agent: TERM, then KILL after the grace. Idempotent."""
        with self._lock:
            self._closed = True
            sessions = list(self._sessions)
        for session in sessions:
            session.give_up("the run is being closed")
            session.order(Stop(grace_seconds=grace_seconds))
        end = time.monotonic() + grace_seconds + LAST_SECONDS
        for session in sessions:
            if not session.wait(max(0.0, end - time.monotonic())):
                session.kill()
                session.wait(LAST_SECONDS)
            session.hang_up()

    def _begin(self, host: HostLaunch) -> Session:
        with self._lock:
            if self._closed:
                raise NotReady("the run is being closed")
            marker = f"flodl-{secrets.token_hex(8)}"
            session = Session(host.label, self._open(host, marker), marker, self._notices.put)
            session.ranks = set(host.ranks)
            self._sessions.append(session)
            return session

    def _refuse(self, causes: Sequence[str]) -> None:
        if causes:
            self.close(0.0)
            raise NotReady("\n".join(causes))


class LocalFanOut(AgentFanOut):
    """Agents as subprocesses of this one. withheld: environment variables that no agent inherits (env_pass)."""

    def __init__(self, withheld: Collection[str] = ()) -> None:
        hidden = frozenset(withheld)
        super().__init__(lambda host, marker: LocalStreams(host, marker, hidden))


class LocalStreams:
    """One agent as a subprocess."""

    def __init__(self, host: HostLaunch, marker: str, withheld: frozenset[str] = frozenset()) -> None:
        env = {name: value for name, value in os.environ.items() if name not in withheld}
        if not host.python:  # our own interpreter finds our own flodl, also from a checkout that is not installed
            root = str(Path(__file__).resolve().parents[2])
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH", ""))))
        try:
            self._process = subprocess.Popen(
                [host.python or sys.executable, "-P", "-m", "flodl.engine.agent", marker],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise NotReady(f"{host.label}: {host.python or sys.executable} does not start: {error}") from None

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
        """End it now."""
        self._process.kill()


def _each(waits: Iterable[Callable[[float], str]]) -> Callable[[float], list[str]]:
    """All of these waits within one common limit; the causes of those that failed."""

    def wait_all(limit_seconds: float) -> list[str]:
        end = time.monotonic() + limit_seconds
        return [cause for wait in waits if (cause := wait(max(0.0, end - time.monotonic())))]

    return wait_all
