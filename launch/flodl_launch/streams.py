"""One program on a host over SSH: its streams, its exit code, its end for certain."""

from __future__ import annotations

import contextlib
import io
import threading
from typing import IO, cast

import paramiko

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl_launch.channel import StreamReader, StreamWriter
from flodl_launch.command import kill_line
from flodl_launch.route import CONNECT_SECONDS
from flodl_launch.ssh import Login

__all__ = ["LINE_LOST", "SshStreams"]

LINE_LOST = 255  # as ssh says it
NO_STATUS = 1 << 16  # in place of paramiko's -1, which is also a SIGHUP
KILL_SECONDS = 2.0  # a login shell may take its time
LAST_WORD_SECONDS = 2.0


class SshStreams:
    """AgentStreams over one channel of one login; the login is closed with it."""

    def __init__(self, channel: paramiko.Channel, login: Login) -> None:
        self.process: tuple[int, int] = (0, 0)  # its number and start time on the host, once they are known
        self._channel = channel
        self._login = login
        self._open_outputs = 2
        self._lock = threading.Lock()
        news = "".join(f"flodl: {text}\n" for text in login.news).encode()
        self._stdin = StreamWriter(channel)
        self._stdout = io.BufferedReader(StreamReader(channel.recv, self._at_end))
        self._stderr = io.BufferedReader(StreamReader(channel.recv_stderr, self._at_end, ahead=news))

    @classmethod
    def start(cls, call: HostCall, login: Login, line: str) -> SshStreams:
        """Run a line in the login shell of the host. Raises HostUnready."""
        try:
            channel = login.transport.open_session(timeout=CONNECT_SECONDS)
            channel.exit_status = NO_STATUS
            channel.exec_command(line)
        except (paramiko.SSHException, OSError, EOFError) as error:
            login.close()
            raise HostUnready(call.label, "protocol", f"logged in, but no command may be run there ({error})",
                              "check MaxSessions and forced commands of its sshd") from None  # fmt: skip
        return cls(channel, login)

    @property
    def stdin(self) -> IO[bytes]:
        return cast(IO[bytes], self._stdin)

    @property
    def stdout(self) -> IO[bytes]:
        return self._stdout

    @property
    def stderr(self) -> IO[bytes]:
        return self._stderr

    @property
    def is_line_lost(self) -> bool:
        """True when the channel was closed and nobody has said how the program ended."""
        return self._channel.status_event.is_set() and self._channel.exit_status == NO_STATUS

    def wait(self, timeout_seconds: float) -> int | None:
        """Its exit code, negative for a signal, 255 where the line was lost; None when it still runs."""
        if not self._channel.status_event.wait(timeout_seconds):
            return None
        code = self._channel.exit_status
        return LINE_LOST if self.is_line_lost else code

    def kill(self) -> None:
        """End it now: a second command kills it, stopped or not, and then it loses its input in any case."""
        if not self._channel.status_event.is_set():
            ask = threading.Thread(target=self._send_kill, name="flodl-kill", daemon=True)
            ask.start()  # a dead line may hold up whoever writes to it
            ask.join(KILL_SECONDS)
        self._login.close()

    def _send_kill(self) -> None:
        """The protocol's own signals are refused for root and for forced commands: a command it is."""
        with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
            if self.process[0]:
                self._login.transport.open_session(timeout=KILL_SECONDS).exec_command(kill_line(*self.process))
                self._channel.status_event.wait(KILL_SECONDS)

    def _at_end(self) -> None:
        with self._lock:
            self._open_outputs -= 1
            if self._open_outputs:
                return
        self._channel.status_event.wait(LAST_WORD_SECONDS)
        self._login.close()
