"""Small programs that tests run on hosts, and the other ends of their connections."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator

from tests.lab.host import PYTHON, Host
from tests.lab.lab import Lab

__all__ = ["ANSWER_SECONDS", "dial", "listening", "reaches", "ssh"]

ANSWER_SECONDS = 1.0

ECHO = """\
import socket, sys
door = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
peer, _ = door.accept()
while data := peer.recv(65536):
    peer.sendall(data if len(data) < 1000 else b".")
"""

DIAL = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except OSError as error:
    print(type(error).__name__)
else:
    print("reached")
"""


@contextlib.contextmanager
def listening(host: Host, port: int) -> Iterator[None]:
    """A server on the host that accepts one connection and echoes short messages."""
    with host.popen([PYTHON, "-S", "-c", ECHO, host.address, str(port)]) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            yield
        finally:
            server.kill()
            host.end_processes()


def dial(host: Host, port: int) -> socket.socket:
    """A connection of this machine to the host."""
    connection = socket.create_connection((host.address, port), timeout=ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def reaches(host: Host, address: str, port: int) -> str:
    """ "reached", or the name of the error that the host met when it dialled."""
    return host.exec([PYTHON, "-S", "-c", DIAL, address, str(port), str(ANSWER_SECONDS)]).stdout.strip()


def ssh(lab: Lab, name: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The system's own ssh, as a person would use it."""
    words = ["ssh", "-F", str(lab.folder / "ssh_config"), "-o", "ConnectTimeout=3", "-o", "BatchMode=yes", *options]
    return subprocess.run([*words, name, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
