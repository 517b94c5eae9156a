"""flodl's own sweeps: what only some rigs can run, what was run before, warm agents, signals, hosts shared out."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from flodl.record.result import read_result
from tests.engine.live import children, cmdline, wait_gone
from tests.launcher.sweeping import Sweep, flodl

SHORT = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=1", "trainer.limit_batches=60")
LONG = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=100000", "eval.every_epochs=null")
SECOND_EPOCH = re.compile(r"epoch +2/")
SAME_FOLDER = "hydra.sweep.dir=sweep"
TWO_HOSTS = (
    "cluster.workers=[{host: localhost, local_devices: 'cpu:1', nccl_socket_ifname: lo}, "
    "{host: 127.0.0.2, local_devices: 'cpu:1', nccl_socket_ifname: lo}]"
)
STEP = """
from flodl.steps.classification import Classification

class Failing(Classification):
    calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        if self.calls == 3:
            raise ValueError("a label of 12 in ten classes")
        return super().__call__(model, batch)
"""
HEARING = """
import json
from hydra.core.utils import JobStatus
from hydra.experimental.callback import Callback

def note(path, kind, **what):
    with open(path, "a") as file:
        file.write(json.dumps({"kind": kind, **what}) + "\\n")

class Log:
    def __init__(self, *, path):
        self.path = path

    def begin(self, run):
        note(self.path, "begin", name=run.name)

    def log(self, figures, step, at):
        note(self.path, "log", figures=figures, step=step)

    def end(self, status, figures):
        note(self.path, "end", status=status)

    def compare(self, sweep):
        note(self.path, "compare", losses=[arm.figures.get("eval/loss") for arm in sweep.arms])

class Told(Callback):
    def on_job_end(self, config, job_return, **kwargs):
        if job_return.status == JobStatus.COMPLETED:
            note("heard.jsonl", "told", value=job_return.return_value)
"""


def agents(sweep: Sweep) -> set[int]:
    """Those that the sweep started: what an agent forks shows the agent's own command line until it has its program."""
    found = {pid for pid in sweep.family if b"flodl.engine.agent" in cmdline(pid)}
    return found - {pid for agent in found for pid in children(agent)}


def watched(sweep: Sweep) -> set[int]:
    """The agents that were ever there, until the sweep ends."""
    seen: set[int] = set()
    while sweep.process.poll() is None:
        sweep.look()
        seen |= agents(sweep)
    return seen


def test_modes_expand_to_arms_of_which_some_are_for_another_rig_and_loggers_hear_of_all(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HEARING)
    hearing = ("+logger.mine={_target_: mine.Log, path: heard.jsonl}", "+hydra.callbacks.told={_target_: mine.Told}")
    with flodl(tmp_path, "experiment=ab_modes", *SHORT, *hearing) as sweep:
        seen = watched(sweep)
        assert sweep.end() == 0, sweep.output
        assert sweep.of_arms("status") == ["done", "done", "done", "skipped", "skipped"]
        assert "NCCL averages GPUs" in sweep.arms[3]["reason"]
        assert "use elche=cpu_sync" in sweep.arms[3]["reason"]
        results = [arm["result"] for arm in sweep.arms[:3]]
        assert [result["mode"] for result in results] == ["cpu_sync", "cpu_cadence", "cpu_async"]
        assert len(seen) == 1, "one agent for all arms"
        assert results[2]["startup_seconds"] < results[0]["startup_seconds"]
        markdown = (sweep.place / "comparison.md").read_text()
        assert "`cluster=rehearsal`" in markdown
        page = (sweep.place / "comparison.html").read_text()
        assert json.loads((sweep.place / "comparison.json").read_text())["conclusion"] in page
        for arm in sweep.arms[:3]:
            assert f'href="{arm["folder"]}/report.html"' in page
            assert "<svg" in (sweep.place / arm["folder"] / "report.html").read_text()
        losses = [result["eval"]["loss"] for result in results]
        heard = [json.loads(line) for line in (tmp_path / "heard.jsonl").read_text().splitlines()]
        assert [line["value"] for line in heard if line["kind"] == "told"] == losses, "what a sweeper learns from"
        assert [line["status"] for line in heard if line["kind"] == "end"] == ["done"] * 3
        logged = [line["figures"] for line in heard if line["kind"] == "log" and "eval/loss" in line["figures"]]
        assert [figures["eval/loss"] for figures in logged] == losses
        assert heard[-1] == {"kind": "compare", "losses": [*losses, None, None]}


def test_a_job_whose_middle_arm_fails_twice_is_compared_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STEP)
    usual = "flodl.steps.classification.Classification"
    again = (*SHORT, "elche=cpu_cadence", "hydra.launcher.retries=1")
    with flodl(tmp_path, f"step._target_={usual},mine.Failing,{usual}", *again) as sweep:
        assert sweep.end() == 1
        assert sweep.of_arms("status") == ["done", "failed", "done"]
        assert "a label of 12 in ten classes" in sweep.arms[1]["reason"]
        assert sweep.arms[1]["result"]["status"] == "failed"
        assert sweep.of_arms("folder") == ["0", "1.2", "2"], "a second try goes into a folder of its own"
        assert sweep.of_arms("attempts") == [1, 2, 1]
        for folder in ("1", "1.2"):
            assert read_result(sweep.place / folder / "result.json").status == "failed"
        assert sweep.arms[2]["result"]["samples_done"] > 0
        assert "1 of 3 arms failed" in sweep.output
        assert "Error executing job" not in sweep.output, "the table says it"


def test_what_was_run_before_is_not_run_again(tmp_path: Path) -> None:
    command = (*SHORT, "elche=cpu_cadence")
    with flodl(tmp_path, "trainer.seed=1", *command, SAME_FOLDER) as sweep:
        assert sweep.end() == 0
    with flodl(tmp_path, "trainer.seed=1,2", *command, SAME_FOLDER, "hydra.launcher.skip_completed=true") as sweep:
        assert sweep.end() == 0
        assert sweep.of_arms("status") == ["skipped", "done"]
        assert sweep.arms[0]["reason"] == f"finished before: {tmp_path / 'sweep' / '0'}"
        assert sweep.arms[0]["result"]["status"] == "done", "its figures are compared"
    with flodl(tmp_path, "trainer.seed=3", *command) as sweep:
        assert sweep.end() == 0
    with flodl(tmp_path, "trainer.seed=3", *command, "hydra.launcher.skip_completed=true") as sweep:
        assert sweep.end() == 0
        *_, shown = sorted((tmp_path / "outputs").rglob("comparison.json"), key=lambda path: path.stat().st_mtime_ns)
        assert [arm["status"] for arm in json.loads(shown.read_text())["arms"]] == ["skipped"]


@pytest.mark.parametrize(
    ("cluster", "running"),
    [((), 1), ((TWO_HOSTS, "hydra.launcher.max_parallel=2"), 2)],
    ids=["in turn", "side by side"],
)
def test_the_first_signal_ends_the_running_arms_in_order_and_begins_no_other(
    tmp_path: Path, cluster: Sequence[str], running: int
) -> None:
    with flodl(tmp_path, "trainer.seed=1,2,3", *LONG, *cluster) as sweep:
        sweep.until(lambda: len(SECOND_EPOCH.findall(sweep.output)) >= running)
        sweep.process.send_signal(signal.SIGINT)
        assert sweep.end(30.0) in (75, 130)
        assert "; to do these anew: python -m flodl -m trainer.seed=1,2,3 " in sweep.output.splitlines()[-1]
        assert sweep.of_arms("status") == ["interrupted"] * 3
        assert [arm["result"] is not None for arm in sweep.arms] == [True] * running + [False] * (3 - running)
        for arm in sweep.arms[:running]:
            assert arm["result"]["epochs_done"] >= 1
            assert (sweep.place / arm["folder"] / "checkpoints" / "weights.safetensors").exists()
        wait_gone(sweep.family, 5.0)


def test_the_second_signal_ends_them_at_once(tmp_path: Path) -> None:
    with flodl(tmp_path, "trainer.seed=1,2,3", *LONG[1:], TWO_HOSTS, "hydra.launcher.max_parallel=2") as sweep:
        sweep.until(lambda: len(SECOND_EPOCH.findall(sweep.output)) >= 2)
        sweep.process.send_signal(signal.SIGINT)
        sweep.process.send_signal(signal.SIGTERM)
        assert sweep.end(20.0) == 130
        wait_gone(sweep.family, 5.0)


def test_arms_side_by_side_train_on_hosts_of_their_own(tmp_path: Path) -> None:
    command = ("trainer.seed=1,2,3", *SHORT[1:], TWO_HOSTS, "elche=cpu_cadence", "hydra.launcher.max_parallel=2")
    with flodl(tmp_path, *command) as sweep:
        assert sweep.end() == 0, sweep.output
        hosts = [arm["result"]["hosts"] for arm in sweep.arms]
        assert hosts[:2] == [["localhost"], ["127.0.0.2"]]
        assert hosts[2] in hosts[:2]
    with flodl(tmp_path, *command, "hydra.launcher.skip_completed=true") as sweep:
        assert sweep.end() == 0
        assert sweep.output.count("finished before") == 3, "whichever hosts they had"


def test_a_wrong_arm_beside_a_right_one_ends_with_1(tmp_path: Path) -> None:
    command = ("trainer.seed=-1,2", *SHORT[1:], TWO_HOSTS, "elche=cpu_cadence", "hydra.launcher.max_parallel=2")
    with flodl(tmp_path, *command) as sweep:
        assert sweep.end() == 1
        assert sweep.of_arms("status") == ["failed", "done"]
        assert "1 of 2 arms failed" in sweep.output
