"""The warm process of a host: has imported everything that ranks need, run no torch operation, and forks ranks.

Single-threaded, from its main thread: a fork after one multi-threaded operation would hang at the child's next one.
It is the parent of the ranks, so it alone signals them: until it has reaped a rank, that number can belong to nobody
else. It talks to its agent over one SEQPACKET socket; a rank's payload passes by as a file descriptor, unread, so that
no rank inherits another's keys.

    python -P -m flodl.engine.warm SOCKET_FD AGENT_PID [MODULE ...]
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from flodl.engine.lifeline import die_with_parent, start_time

__all__ = ["Nursery", "main"]

PRELOADED = ("numpy", "torch", "torch.distributed", "zmq", "msgspec", "flodl.engine.link", "flodl.engine.store")
MESSAGE_BYTES = 65536
DESCRIPTORS = 3  # payload, output, errors


class Nursery:
    """Forks ranks on the agent's word, signals them, and tells how they ended."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._ranks: dict[int, int] = {}  # rank -> pid
        self._pidfds: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the agent is gone."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.data)
                elif not self._obey():
                    return

    def say(self, **word: Any) -> None:
        """One word to the agent."""
        self._channel.send(json.dumps(word).encode("ascii"))

    def _obey(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, DESCRIPTORS)
        if not data:
            return False
        order = json.loads(data)
        if order["do"] == "fork":
            self._fork(order["rank"], descriptors)
        elif order["rank"] in self._ranks:
            self._signal(self._ranks[order["rank"]], order["number"])
        return True

    def _signal(self, pid: int, number: int) -> None:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:  # so young that it has no group of its own yet
            os.kill(pid, number)

    def _fork(self, rank: int, descriptors: list[int]) -> None:
        warm = os.getpid()
        pid = os.fork()
        if pid == 0:
            inherited = [self._channel.fileno(), self._selector.fileno(), *self._pidfds.values()]  # type: ignore[attr-defined]
            _become_rank(warm, descriptors, inherited)
        for descriptor in descriptors:
            os.close(descriptor)
        self._ranks[rank] = pid
        self._pidfds[rank] = os.pidfd_open(pid)
        self._selector.register(self._pidfds[rank], selectors.EVENT_READ, data=_Ended(rank))
        self.say(word="started", rank=rank, pid=pid, start_time=start_time(pid))

    def _reap(self, ended: _Ended) -> None:
        pid = self._ranks.pop(ended.rank)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # what the rank left behind; its number is held until the next line
        _, status = os.waitpid(pid, 0)
        pidfd = self._pidfds.pop(ended.rank)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self.say(word="exited", rank=ended.rank, code=os.waitstatus_to_exitcode(status))


class _Ended:
    def __init__(self, rank: int) -> None:
        self.rank = rank


def main(channel_fd: int, agent_pid: int, preload: Sequence[str] = ()) -> None:
    """Import, say what was imported, serve."""
    die_with_parent(agent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=channel_fd) as channel:
        for module in (*PRELOADED, *preload):
            importlib.import_module(module)
        from flodl.engine.facts import torch_facts

        nursery = Nursery(channel)
        nursery.say(word="warm", facts=torch_facts())
        gc.freeze()  # collected garbage would copy pages that all ranks share
        nursery.serve()


def _become_rank(warm: int, descriptors: list[int], inherited: list[int]) -> NoReturn:
    """In the child, for good: never returns into the parent's loop."""
    code = 70
    try:
        die_with_parent(warm)
        os.setsid()
        for descriptor in inherited:
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        born = _read(descriptors[0])
        for descriptor, standard in zip(descriptors[1:], (1, 2), strict=True):
            os.dup2(descriptor, standard)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        for descriptor in descriptors:
            os.close(descriptor)
        from flodl.engine.birth import live

        code = live(born)
    except BaseException:  # noqa: BLE001  it is told, and ends this process
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # threads that hang in an abandoned collective must not hold the process


def _read(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
