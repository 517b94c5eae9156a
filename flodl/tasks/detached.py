"""launch.detach=true: the run goes on without the terminal it was typed in, as a process of its own.

`leave` starts this module with the composed job on its standard input (nothing is composed twice) and waits until the
new controller has written its first status. That one has no terminal, leads a session of its own and ignores SIGHUP.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from flodl.errors import ConfigError, FlodlError, NotReady, Problem
from flodl.record.folder import RunFolder
from flodl.record.status import read_status
from flodl.spec.codec import decode_job, job_to_plain
from flodl.tasks.here import run_here
from flodl.tasks.order import Order
from flodl.tasks.which import shown, typed

__all__ = ["leave", "main"]

START_SECONDS = 60.0
LOOK_SECONDS = 0.05


class _Handed(msgspec.Struct, frozen=True, kw_only=True):
    """What the new controller is told. begun: of the monotonic clock, which is the same for all processes here."""

    job: dict[str, object]
    folder: str
    begun: float


def leave(order: Order) -> None:
    """Start the run and leave it. Returns once its controller lives; raises NotReady with its last words if it ends."""
    if order.is_arm:
        raise ConfigError([Problem(key="launch.detach", value="true", constraint="is for one run, not for a sweep",
                                   remedy="in the background: nohup python -m flodl -m ... &")])  # fmt: skip
    folder = RunFolder(order.folder)
    handed = _Handed(job=job_to_plain(order.job), folder=str(order.folder), begun=order.begun)
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.controller_log_path.open("ab") as log:
        process = _started(log.fileno())
    try:
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(handed))
        _await(process, folder)
    except BaseException:
        process.terminate()
        raise
    where = shown(folder.path)
    run = typed("run", where)
    sys.stdout.write(f"detached    {where}, process {process.pid}\n"
                     f"to watch    python -m flodl task=status {run}\n"
                     f"            tail -f {shown(folder.controller_log_path)}\n"
                     f"to stop     python -m flodl task=stop {run}\n")  # fmt: skip


def main() -> int:
    """The new controller: everything that it says stands in its log."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # whoever sends one to a run without a terminal means a terminal
    handed = msgspec.json.decode(sys.stdin.buffer.read(), type=_Handed)
    try:
        run_here(Order(job=decode_job(handed.job), folder=Path(handed.folder), begun=handed.begun))
    except FlodlError as error:
        if not error.is_told:
            sys.stderr.write(f"flodl: {error}\n")
        return error.exit_code
    return 0


def _started(log: int) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": paths},
    )


def _await(process: subprocess.Popen[bytes], folder: RunFolder) -> None:
    """Until the new controller says that it is there."""
    end = time.monotonic() + START_SECONDS
    while not (folder.status_path.exists() and read_status(folder.status_path).pid == process.pid):
        if process.poll() is not None:
            said = folder.controller_log_path.read_text(errors="replace").strip() or f"exit code {process.returncode}"
            raise NotReady(f"the detached controller ended at once:\n{said}")
        if time.monotonic() >= end:
            raise NotReady(f"the detached controller said nothing within {START_SECONDS:g} s and was ended; "
                           f"see {shown(folder.controller_log_path)}")  # fmt: skip
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
