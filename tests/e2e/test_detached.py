"""launch.detach=true: the run goes on without the command, its terminal and its session, and is watched and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl.record.process import send
from flodl.record.status import read_status
from tests.e2e.command import LONG, command
from tests.engine.live import ROOT, alive, children, cmdline, wait_gone

LEFT_SECONDS = 5.0


def flodl(folder: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more.pop("env", {})}
    return subprocess.run([sys.executable, "-m", "flodl", *arguments], cwd=folder, env=env, capture_output=True,
                          text=True, timeout=120, **more)  # fmt: skip


def pid_of(folder: Path) -> int:
    return read_status(folder / "run" / "status.json").pid


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Path]:
    """A working folder; whatever run is left in it is ended."""
    yield tmp_path
    path = tmp_path / "run" / "status.json"
    controller = read_status(path).controller if path.exists() else None
    if controller is not None:
        send(controller, signal.SIGKILL)


def until_trained(folder: Path, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    log = folder / "run" / "controller.log"
    while "epoch 1: loss" not in log.read_text(errors="replace"):
        assert time.monotonic() < end, log.read_text(errors="replace")
        time.sleep(0.05)


def test_it_goes_on_alone_shows_no_secret_is_watched_and_stopped(ended: Path) -> None:
    begun = time.monotonic()
    secret = {"MY_API_KEY": "hunter2"}
    done = flodl(ended, *LONG, "launch.detach=true", "cluster.env_pass=[MY_API_KEY]", env=secret)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 60
    pid = int(re.search(r"detached    run, process (\d+)\n", done.stdout)[1])  # type: ignore[index]
    assert pid == pid_of(ended)
    assert "to watch    python -m flodl task=status run=run\n" in done.stdout
    assert "to stop     python -m flodl task=stop run=run\n" in done.stdout
    assert os.getsid(pid) == pid, "a session of its own"
    until_trained(ended)
    os.kill(pid, signal.SIGHUP)  # it has no terminal that could hang up
    family = [pid, *children(pid)]
    assert not [each for each in family if b"hunter2" in cmdline(each)]
    while "samples/s" not in (watched := flodl(ended, "task=status", "run=run")).stdout:  # written every 2 s
        assert time.monotonic() - begun < 120, watched.stdout
    assert f"state       running: process {pid}, " in watched.stdout
    assert "epoch 1/" not in watched.stdout
    assert all(alive(each) for each in family)
    stopped = flodl(ended, "task=stop", "run=run")
    assert stopped.returncode == 0, stopped.stderr
    assert "interrupted after " in stopped.stdout
    assert "kept checkpoints/model.fdl" in stopped.stdout
    wait_gone(family, LEFT_SECONDS)
    assert not [path for path in (ended / "run").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    result = json.loads((ended / "run" / "result.json").read_text())
    assert (result["status"], result["reason"], result["exit_code"]) == ("interrupted", "SIGTERM", 75)
    assert result["rounds"] > 0
    said = (ended / "run" / "controller.log").read_text()
    assert "2 ranks on" in said, "what the terminal would have shown"
    assert "interrupted" in said
    assert "run folder: run\nweights: run/checkpoints/weights.safetensors\n" in said
    assert "hosts are prepared, met and looked at: localhost" in said
    assert "every way that the run needs is tried" in said
    told = [re.sub(r"^[0-9T:.Z-]+ ", "", line) for line in said.splitlines()]
    assert len([line for line in told if line.startswith("epoch 1:")]) == 1, "each thing once"
    assert len(told) == len(set(told)), "each line once"


def test_it_runs_to_its_end(ended: Path) -> None:
    job = (*LONG[:2], "trainer.num_epochs=1", "cluster.deploy.code=rsync", "hydra.run.dir=run", "launch.detach=true")
    done = flodl(ended, *job)
    assert done.returncode == 0, done.stderr
    pid = pid_of(ended)
    wait_gone([pid], 90.0)
    assert (ended / "run" / "controller.log").read_text().count("pushes are over: the hosts are met and looked at") == 1
    assert json.loads((ended / "run" / "result.json").read_text())["status"] == "done"
    shown = flodl(ended, "task=status", "run=run", "json=true")
    assert json.loads(shown.stdout)["kind"] == "finished"


def test_what_is_wrong_at_once_is_told_by_the_command(ended: Path) -> None:
    done = flodl(ended, *LONG, "launch.detach=true", "hydra.run.dir=/proc/nowhere")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "trainer.seed=1,2"], "launch.detach=true: is for one run, not for a sweep; in the background: nohup"),
        (["debug=inprocess"], "launch.detach=true: leaves no terminal, and a debugger (debug.inprocess) wants one"),
    ],
)
def test_where_it_cannot_be_it_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    done = flodl(tmp_path, *words, "launch.detach=true", "cluster=rehearsal", "model=mlp")
    assert done.returncode in (1, 2)
    assert said in " ".join((done.stdout + done.stderr).split())


def test_an_interrupted_command_on_this_machine_is_ended_with_what_it_started(tmp_path: Path) -> None:
    with command(tmp_path, "task=exec", "command='echo $$; sleep 97 & echo $!; wait'") as run:
        run.until(lambda: run.output.count("[localhost] ") == 2)
        pids = [int(line.split()[1]) for line in run.output.splitlines()]
        run.signal(signal.SIGINT)
        assert run.end(10.0) == 130
        wait_gone(pids, LEFT_SECONDS)
        assert "Traceback" not in run.output
