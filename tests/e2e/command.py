"""`python -m flodl` as a person starts it: a process of its own, in an empty folder, and everything it starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.live import ROOT, alive, children, cmdline, found_in

LONG = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=100000", "eval.every_epochs=null", "hydra.run.dir=run")


class Command:
    """A command under way. output: of both streams, as far as it has come. gpus: whether it sees any."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], *, gpus: bool = False, **popen: Any) -> None:
        self.folder = folder
        self._output = folder / "output.txt"
        hidden = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flodl", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": found_in(ROOT), "COLUMNS": "200"} | hidden,
                **{
                    "stdin": subprocess.DEVNULL,
                    "stdout": output,
                    "stderr": subprocess.STDOUT,
                    "start_new_session": True,
                    **popen,
                },
            )
        self.family: list[int] = []

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def result(self) -> dict[str, Any]:
        return json.loads((self.folder / "run" / "result.json").read_text())

    def until(self, reached: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait for something; fails with the output where it does not come or the command ends before."""
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, f"not within {seconds} s:\n{self.output}"
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
            time.sleep(0.02)

    def trains(self) -> Command:
        """Wait until an epoch is done; remember everything that was started."""
        self.until(lambda: "epoch " in self.output)
        self.family = children(self.process.pid)
        return self

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, seconds: float = 60.0) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {seconds} s:\n{self.output}") from None

    def rank(self, number: int) -> int:
        """The process number of a rank: ranks lead sessions of their own, in the order of their birth."""
        leaders = [pid for pid in self.family if os.getsid(pid) == pid and b"engine.warm" in cmdline(pid)]
        return sorted(leaders)[number]


@contextmanager
def command(folder: Path, *arguments: str, **popen: Any) -> Iterator[Command]:
    """Started here, and ended at the latest here."""
    run = Command(folder, arguments, **popen)
    try:
        yield run
    finally:
        for pid in (run.process.pid, *run.family):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        run.process.wait()


def listening(pids: list[int]) -> dict[str, list[int]]:
    """hex address -> ports on which these processes listen, from /proc/net."""
    own: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it may end meanwhile
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    own.add(str(link.readlink()))
    found: dict[str, list[int]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                address, _, port = fields[1].rpartition(":")
                found.setdefault(address, []).append(int(port, 16))
    return found


__all__ = ["LONG", "Command", "children", "command", "listening"]
