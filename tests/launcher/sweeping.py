"""Sweeps as processes of their own: of an application that is not flodl, and of flodl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine.live import ROOT, alive, children

APPLICATION = """
import json, os, time
from pathlib import Path
import hydra
from arm import does
from hydra.core.hydra_config import HydraConfig


@hydra.main(config_path=".", config_name="config", version_base="1.3")
def main(config):
    number = HydraConfig.get().job.num
    notes = Path(config.notes)
    def note(kind):
        hosts = [worker.host for worker in config.cluster.workers] if "cluster" in config else []
        line = {"arm": number, "kind": kind, "at": time.monotonic(), "pid": os.getpid(), "hosts": hosts}
        with (notes / "notes.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\\n")
    note("begin")
    print(f"hello from {number}")
    value = does(number, notes)
    note("end")
    return value


main()
"""
CONFIG = "x: 0\nnotes: ???\nhydra: {job_logging: {root: {level: WARNING}}}\n"
BARE = "defaults: [override hydra/launcher: flodl_ssh, _self_]\n"
CLUSTER = "cluster: {controller: {port: 0}, workers: [{host: a}, {host: b}, {host: c}, {host: d}, {host: e}]}\n"


class Sweep:
    """A sweep under way."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self._output = folder / "output.txt"
        path = os.pathsep.join([str(ROOT), str(ROOT / "launch")])
        env = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        self.family: list[int] = []

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, f"not within {seconds} s:\n{self.output}"
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.output}"
            time.sleep(0.02)
        self.look()

    def look(self) -> None:
        """Remember every process that was started and lives."""
        self.family = children(self.process.pid)

    def end(self, seconds: float = 120.0) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {seconds} s:\n{self.output}") from None

    @property
    def notes(self) -> list[dict[str, Any]]:
        """What the arms of the application noted."""
        path = self.folder / "notes.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def begun(self) -> list[int]:
        return [note["arm"] for note in self.notes if note["kind"] == "begin"]

    @property
    def place(self) -> Path:
        """The sweep's folder."""
        return next(path.parent for path in self.folder.rglob("multirun.yaml"))

    @property
    def arms(self) -> list[dict[str, Any]]:
        """What comparison.json says."""
        return json.loads((self.place / "comparison.json").read_text())["arms"]

    def of_arms(self, key: str) -> list[Any]:
        return [arm[key] for arm in self.arms]


@contextmanager
def application(folder: Path, does: str, *arguments: str, config: str = "") -> Iterator[Sweep]:
    """Any Hydra application with our launcher. does: body of what each arm does; it sees `number` and `notes`."""
    (folder / "application.py").write_text(APPLICATION)
    (folder / "config.yaml").write_text(BARE + CONFIG + config)
    body = "import os, time, signal, threading\n\ndef does(number, notes):\n" + textwrap.indent(does, "    ")
    (folder / "arm.py").write_text(body)
    command = [sys.executable, "application.py", "-m", f"notes='{folder}'", "hydra.sweep.dir=sweep", *arguments]
    with _ended(Sweep(folder, command)) as sweep:
        yield sweep


@contextmanager
def flodl(folder: Path, *arguments: str) -> Iterator[Sweep]:
    """flodl's own command line."""
    with _ended(Sweep(folder, [sys.executable, "-m", "flodl", "-m", *arguments])) as sweep:
        yield sweep


@contextmanager
def _ended(sweep: Sweep) -> Iterator[Sweep]:
    try:
        yield sweep
    finally:
        for pid in (sweep.process.pid, *sweep.family):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        sweep.process.wait()


__all__ = ["CLUSTER", "Sweep", "application", "flodl"]
