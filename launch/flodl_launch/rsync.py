"""rsync to one host, with its progress heard: what is there already is not sent again."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from flodl.errors import HostUnready
from flodl.ports import HostCall, PushProgress
from flodl_launch.gate import DroppedError, gate_of, persist
from flodl_launch.openssh import ALIAS, client_config
from flodl_launch.quiet import remote_shell
from flodl_launch.route import route

__all__ = ["end_all", "send"]

PROGRESS = re.compile(rb"\s*([\d,.]+)\s+(\d+)%\s+(\S+)\s+(\d+):(\d\d):(\d\d)")
DROPPED = re.compile(r"Connection (closed|reset) by|kex_exchange_identification")
SSH_FAILED, NOT_FOUND = 255, 127
VANISHED = 24  # a file went while the push was under way
KEPT_LINES = 5
TRY = "push by hand, `rsync -av ./ {host}:{path}/`"
REMEDIES = (  # the first sign that rsync's or ssh's last lines hold
    ("No space left on device", "its disk is full: make room at {path} on that host, or choose another path:"),
    ("Disk quota exceeded", "its user's quota is used up: make room at {path} on that host, or choose another path:"),
    ("Read-only file system", "its disk takes no files: choose another path: for that host"),
    ("Permission denied", "let its user write to all of {path}, or choose another path: for that host"),
    ("is your shell clean", "nothing in ~/.bashrc and the like may write to a shell that is not interactive"),
    ("Broken pipe", TRY + ": its line was lost, or rsync was ended there"),
    ("connection unexpectedly closed", TRY + ": its line was lost, or rsync was ended there"),
)
FILE_ERROR = 11  # that end may be gone before its words have come
NOT_WRITTEN = "files could not be written; most often its disk is full: make room at {path} on that host"
ALL = 100

_running: set[subprocess.Popen[bytes]] = set()
Listener = Callable[[PushProgress], None]


def send(
    call: HostCall, what: str, source: Path, target: str, names: Sequence[str] | None, on_progress: Listener
) -> None:
    """Copy the folder's content into the target folder, or of it only these names. Raises HostUnready."""
    words = ["rsync", "-a", "--no-owner", "--no-group", "--no-inc-recursive", "--info=progress2", "--secluded-args"]
    if names is not None:
        # Code of equal size and second may still be other code, and what was listed a moment ago may be gone.
        words += ["--from0", "--files-from=-", "--checksum", "--ignore-missing-args"]
    given = b"\0".join(map(os.fsencode, names or ()))
    with tempfile.TemporaryDirectory(prefix="flodl-") as folder:
        place = target
        gate = gate_of("", 0)
        if not call.here:
            hops = route(call)
            config = Path(folder) / "ssh_config"
            config.write_text(client_config(hops))
            words += ["-e", remote_shell(f"flodl-{secrets.token_hex(8)}", str(config))]
            place = f"{ALIAS}:{target}"
            gate = gate_of(hops[0].host, hops[0].port)
        words += ["--", f"{source}/", f"{place}/"]
        try:
            persist(gate, lambda: _run(call, what, words, given, on_progress))
        except DroppedError as error:
            raise HostUnready(call.label, "refused", str(error), "raise MaxStartups in its sshd_config") from None


def end_all() -> None:
    """End every push: what the hosts run for it ends with its line."""
    for process in tuple(_running):
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """rsync and its ssh, which would stay for as long as a host says nothing."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # another thread has waited for it since
            os.killpg(process.pid, signal.SIGKILL)  # it leads its session


def _run(call: HostCall, what: str, words: Sequence[str], given: bytes, on_progress: Listener) -> None:
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:  # no pipe that fills while we wait
        names.write(given)
        names.seek(0)
        env = {**os.environ, "LC_ALL": "C"}
        try:
            process = subprocess.Popen(
                words, stdin=names, stdout=subprocess.PIPE, stderr=errors, env=env, start_new_session=True
            )
        except OSError as error:
            raise HostUnready(call.label, "ended", f"rsync does not start here: {error.strerror}",
                              "install rsync on this machine") from None  # fmt: skip
        _running.add(process)
        with process:
            try:
                _hear(call, what, process, on_progress)
                code = process.wait()
            finally:
                _running.discard(process)
                _end(process)
        errors.seek(0)
        if code not in (0, VANISHED):
            target = words[-1].removeprefix(f"{ALIAS}:").rstrip("/")
            raise _failed(call, what, target, code, errors.read().decode(errors="replace"))


def _hear(call: HostCall, what: str, process: subprocess.Popen[bytes], on_progress: Listener) -> None:
    """rsync rewrites one line: each of its states ends with a carriage return. Its percents may end below 100."""
    assert process.stdout is not None
    rest = b""
    told = PushProgress(host=call.label, what=what, sent_bytes=0, percent=0, rate="", left_seconds=0)
    while data := process.stdout.read1(65536):  # type: ignore[attr-defined]
        *states, rest = re.split(rb"[\r\n]", rest + data)
        for state in filter(None, map(PROGRESS.match, states)):
            sent, percent, rate, hours, minutes, seconds = (group.decode() for group in state.groups())
            left = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
            sent_bytes = int(re.sub(r"\D", "", sent))
            told = msgspec.structs.replace(
                told, sent_bytes=sent_bytes, percent=int(percent), rate=rate, left_seconds=left
            )
            on_progress(told)
    if process.wait() == 0 and told.percent < ALL:
        on_progress(msgspec.structs.replace(told, percent=ALL, left_seconds=0))


def _failed(call: HostCall, what: str, target: str, code: int, errors: str) -> Exception:
    lines = [line for line in errors.splitlines() if line.strip()][-KEPT_LINES:]
    if code == SSH_FAILED and DROPPED.search(errors):
        return DroppedError(lines[-1])
    if "rsync: command not found" in errors or "rsync: not found" in errors or code == NOT_FOUND:
        return HostUnready(call.label, "ended", f"{what} was not pushed: there is no rsync on that host",
                           "install rsync there", lines)  # fmt: skip
    said = f"{what} was not pushed: rsync ended with {code}"
    unsaid = NOT_WRITTEN if code == FILE_ERROR else f"{TRY}: it says more"
    remedy = next((remedy for sign, remedy in REMEDIES if sign in errors), unsaid)
    return HostUnready(call.label, "ended", said, remedy.format(host=call.label, path=target), lines)
