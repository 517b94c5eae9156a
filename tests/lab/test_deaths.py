"""FAULTS rows 11, 13 and 14, the part about processes: who is gone and when; signals are heard in every phase."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from flodl.decide.messages import Average, AveragingDone
from flodl.record.journal import read_journal
from tests.e2e.command import Command
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, awaited, flodl, lone_ranks, ranks, write_own

AGENT = "flodl.engine.agent"
LEFT_SECONDS = 5.0
AGENT_SECONDS = 1.0
NOTED_SECONDS = 0.1
INTERRUPTED = 130  # nothing was saved
RESUMABLE = 75
STOPPING = "stopping at the next round: "

PHASES = """\
import os, sys, time
from torch.utils.data import Dataset
from flodl.datasets.digits import digits
from flodl.datasets.splits import Splits
from flodl.models.mlp import MLP
from flodl.steps.classification import Classification

lingered = []

def linger(phase):
    if os.environ["PHASE"] == phase and not lingered:
        lingered.append(phase)
        print("now", phase, flush=True)
        time.sleep(2)

class Net(MLP):
    def __init__(self, **given):
        linger("warm-up")
        super().__init__(**given)

class Step(Classification):
    steps = 0
    def __call__(self, model, batch):
        self.steps += 1
        if self.steps == 30:
            linger("train")
        return super().__call__(model, batch)
    def metrics(self, model, batch):
        if self.steps > 10:
            linger("eval")
        return super().metrics(model, batch)

class Slow(Dataset):
    def __init__(self, inner):
        self.inner, self.read = inner, 0
    def __len__(self):
        return len(self.inner)
    def __getitem__(self, index):
        self.read += 1
        if self.read == 2000:
            linger("data")
        return self.inner[index]

def slow_digits(**given):
    found = digits(**given)
    return Splits(train=Slow(found.train), eval=found.eval)
"""
OWN = ("model._target_=phases.Net", "step._target_=phases.Step", "dataset._target_=phases.slow_digits",
       "eval.every_epochs=1")  # fmt: skip


def in_phase(lab: Lab, desk: Path, phase: str) -> tuple[str, ...]:
    """A job whose ranks linger in a phase, and say so."""
    write_own(lab, desk, "phases.py", PHASES)
    lab.write_cluster(desk / "conf/cluster/lab.yaml", lone_ranks(lab, env={"PHASE": phase}))
    return (*ENDLESS, *OWN)


def says(run: Command, phase: str) -> bool:
    return any(f"now {phase}" in log.read_text() for log in run.folder.glob("run/ranks/*.log"))


def noted(run: Command, name: str) -> float:
    """Seconds until the terminal says that the signal was heard."""
    return awaited(lambda: f"{STOPPING}{name}" in run.output, 5)


def nothing_runs(lab: Lab) -> bool:
    return lab.processes() == {}


@pytest.mark.row(11)
def test_a_killed_agent_takes_its_ranks_with_it_within_a_second_and_the_others_go_on(lab: Lab, desk: Path) -> None:
    with flodl(desk, *ENDLESS) as run:
        run.trains()
        assert len(ranks(lab, "node-b")) >= 2
        (agent,) = [pid for pid, line in lab["node-b"].processes().items() if AGENT in line and "python" in line]
        os.kill(agent, signal.SIGKILL)
        awaited(lambda: not ranks(lab, "node-b"), AGENT_SECONDS)
        run.until(lambda: "going on with ranks 0, 1, 4, 5" in run.output, 30)
        lines = run.output.count("epoch ")
        run.until(lambda: run.output.count("epoch ") > lines + 5)
        run.signal(signal.SIGTERM)
        assert run.end(120) == 75, run.output
        assert run.result["dead_ranks"] == [2, 3]
        assert "node-b" in run.output


@pytest.mark.row(13)
def test_a_killed_controller_leaves_no_process_on_any_host(lab: Lab, desk: Path) -> None:
    """Not even a rank that was stopped; on a host that is cut off, once it is not any more."""
    with flodl(desk, *ENDLESS) as run:
        run.trains()
        assert all(ranks(lab, host.name) for host in lab.hosts)
        _warm, *born = sorted(ranks(lab, "node-b"))
        os.kill(born[0], signal.SIGSTOP)
        lab.link_down("node-c")
        run.signal(signal.SIGKILL)
        run.end()
        awaited(lambda: not lab["node-a"].processes() and not lab["node-b"].processes(), LEFT_SECONDS)
        lab.link_up("node-c")
        awaited(lambda: nothing_runs(lab), 2 * LEFT_SECONDS)


@pytest.mark.row(14)
@pytest.mark.parametrize("phase", ["warm-up", "data", "eval"])  # train: with the second signal
def test_a_signal_is_noted_at_once_in_every_phase_and_nothing_is_left(lab: Lab, desk: Path, phase: str) -> None:
    with flodl(desk, *in_phase(lab, desk, phase)) as run:
        run.until(lambda: says(run, phase), 60)
        run.signal(signal.SIGTERM)
        if phase != "warm-up":  # before the first window it is the end already
            assert noted(run, "SIGTERM") < NOTED_SECONDS
        assert run.end(30) == (INTERRUPTED if phase == "warm-up" else RESUMABLE), run.output
        awaited(lambda: nothing_runs(lab), LEFT_SECONDS)
        assert run.result["status"] == "interrupted"
        assert (run.result["rounds"] > 0) == (phase != "warm-up")


@pytest.mark.row(14)
def test_a_signal_is_noted_at_once_while_replicas_are_averaged(lab: Lab, desk: Path) -> None:
    lab.write_cluster(desk / "conf/cluster/lab.yaml", lone_ranks(lab))
    for host in lab.hosts:
        lab.slow(host.name, "40mbit")
    with flodl(desk, *ENDLESS, "model.hidden=[1024, 1024]", "elche.anchor=1", "elche.max_anchor=1") as run:
        run.until(lambda: averages(run), 90)
        run.signal(signal.SIGINT)
        assert noted(run, "SIGINT") < NOTED_SECONDS
        assert run.end(120) == RESUMABLE, run.output
        awaited(lambda: nothing_runs(lab), LEFT_SECONDS)


def averages(run: Command) -> bool:
    """Whether a round was ordered to be averaged and nobody has its result yet."""
    journal = run.folder / "run" / "journal.jsonl"
    if not journal.exists() or not journal.read_bytes():
        return False
    _, entries = read_journal(journal)
    ordered = [command.round for _, commands in entries for command in commands if isinstance(command, Average)]
    done = [event.round for event, _ in entries if isinstance(event, AveragingDone)]
    return bool(ordered) and max(ordered) > max(done, default=-1)


@pytest.mark.row(14)
def test_a_hangup_ends_a_run_in_order_and_a_second_signal_everything_now(lab: Lab, desk: Path) -> None:
    with flodl(desk, *in_phase(lab, desk, "train")) as run:
        run.until(lambda: says(run, "train"), 60)
        run.signal(signal.SIGHUP)
        assert noted(run, "SIGHUP") < NOTED_SECONDS
        begun = time.monotonic()
        run.signal(signal.SIGINT)
        assert run.end(LEFT_SECONDS) == INTERRUPTED, run.output
        awaited(lambda: nothing_runs(lab), LEFT_SECONDS - (time.monotonic() - begun))
