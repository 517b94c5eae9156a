"""Sweeps over three real hosts: modes are compared on one job, a failed arm costs itself alone, agents serve all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import Lab
from tests.lab.running import flodl, lone_ranks, write_own

AGENT = "flodl.engine.agent"
MODES = ["cpu_async", "cpu_cadence", "cpu_sync"]
JOB = ("-m", "cluster=lab", "model=mlp", "eval.every_epochs=null", "trainer.num_epochs=2", "hydra.sweep.dir=sweep")
LATER_STARTS = 0.35  # of the first arm's time from its start to its first step: connections and torch are there
USUAL = "flodl.steps.classification.Classification"
FAILING = """\
import socket
from flodl.steps.classification import Classification

class Failing(Classification):
    calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        if self.calls == 3 and socket.gethostname() == "node-b":
            raise ValueError("a label of 12 in ten classes")
        return super().__call__(model, batch)
"""


@pytest.fixture(autouse=True)
def one_rank_each(lab: Lab, desk: Path) -> None:
    lab.write_cluster(desk / "conf/cluster/lab.yaml", lone_ranks(lab))


def arms(desk: Path) -> list[dict[str, Any]]:
    return json.loads((desk / "sweep" / "comparison.json").read_text())["arms"]


def agents(lab: Lab) -> set[tuple[str, int]]:
    """(host, process) of every agent that runs there now. The login's shell is none, nor what an agent is starting."""
    found: set[tuple[str, int]] = set()
    for name, processes in lab.processes().items():
        mine = [pid for pid, line in processes.items() if AGENT in line and line.split()[0].endswith("python")]
        found |= {(name, pid) for pid in mine if parent(pid) not in mine}
    return found


def parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_three_modes_are_compared_on_the_same_agents(lab: Lab, desk: Path) -> None:
    seen: set[tuple[str, int]] = set()
    with flodl(desk, *JOB, f"elche={','.join(MODES)}") as run:
        while run.process.poll() is None:
            seen |= agents(lab)
            time.sleep(0.1)
        assert run.end() == 0, run.output
    assert sorted(name for name, _ in seen) == ["node-a", "node-b", "node-c"], "one agent per host, for all arms"
    results = [arm["result"] for arm in arms(desk)]
    assert [result["mode"] for result in results] == MODES
    assert [result["status"] for result in results] == ["done"] * 3
    assert [result["hosts"] for result in results] == [["node-a", "node-b", "node-c"]] * 3
    assert len({result["samples_done"] for result in results}) == 1
    first, *later = (result["startup_seconds"] for result in results)
    assert max(later) <= LATER_STARTS * first
    table = (desk / "sweep" / "comparison.md").read_text()
    assert all(f"| `elche={mode}` | done |" in table for mode in MODES)


def test_a_failing_middle_arm_is_compared_with_the_others_and_ends_the_sweep_with_1(lab: Lab, desk: Path) -> None:
    write_own(lab, desk, "mine.py", FAILING)
    words = ("elche=cpu_cadence", "membership.max_failure=1")  # else the other ranks go on without the one that fails
    with flodl(desk, *JOB, *words, f"step._target_={USUAL},mine.Failing,{USUAL}") as run:
        assert run.end(120) == 1, run.output
        assert "1 of 3 arms failed" in run.output
        assert "Error executing job" not in run.output
    assert [arm["status"] for arm in arms(desk)] == ["done", "failed", "done"]
    assert "a label of 12 in ten classes" in arms(desk)[1]["reason"]
    assert "node-b" in arms(desk)[1]["reason"]
    assert arms(desk)[1]["result"]["status"] == "failed"
    assert "| failed |" in (desk / "sweep" / "comparison.md").read_text()
