"""Sweeps of an application that is not flodl: what happens to arms that fail, and to those after them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.engine.live import alive, wait_gone
from tests.launcher.sweeping import CLUSTER, application

SIDES = pytest.mark.parametrize("side", [[], ["hydra.launcher.max_parallel=2"]], ids=["in turn", "side by side"])
FAILS = "if number == 1: raise ValueError('no | luck\\nat all')"
SLEEPS = "time.sleep(60)"


@SIDES
def test_after_a_failed_arm_the_others_run_and_all_are_compared(tmp_path: Path, side: list[str]) -> None:
    with application(tmp_path, FAILS, "x=1,2,3", *side) as sweep:
        assert sweep.end() == 1
        assert sorted(sweep.begun()) == [0, 1, 2]
        assert sweep.of_arms("status") == ["done", "failed", "done"]
        assert sweep.of_arms("name") == ["0", "1", "2"]
        assert sweep.arms[1]["reason"] == "no | luck\nat all"
        assert sweep.arms[2]["overrides"][-1] == "x=3"
        markdown = (sweep.place / "comparison.md").read_text()
        assert "| 1 | `x=2` | failed |" in markdown
        assert "no \\| luck |" in markdown
        assert "no | luck" in sweep.output, "the table of failures"
        assert "Error executing job with overrides" in sweep.output, "Hydra has the last word on what nobody explains"
        assert "ValueError" in sweep.output, "the traceback of an error that nobody explains"


@SIDES
def test_a_sweep_stops_at_a_failure_where_that_is_asked_for(tmp_path: Path, side: list[str]) -> None:
    slow = "time.sleep(0.3 * number)\n" + FAILS.replace("1", "0")
    with application(tmp_path, slow, "x=1,2,3,4", "hydra.launcher.on_failure=stop", *side) as sweep:
        assert sweep.end() == 1
        done = ["done"] if side else []  # the arm beside it goes on to its end
        assert sweep.of_arms("status") == ["failed", *done, *["skipped"] * (3 - len(done))]
        assert sweep.arms[3]["reason"] == "not started: arm 0 failed, and hydra.launcher.on_failure is stop"
        assert sweep.arms[3]["attempts"] == 0
        assert len(sweep.begun()) == 1 + len(done)


@SIDES
def test_a_failed_arm_is_tried_again_as_often_as_allowed(tmp_path: Path, side: list[str]) -> None:
    flaky = "tries = notes / f'{number}'\ntries.open('a').write('x')\nassert len(tries.read_text()) > 2 * number"
    with application(tmp_path, flaky, "x=1,2,3", "hydra.launcher.retries=2", *side) as sweep:
        assert sweep.end() == 1
        assert sweep.of_arms("status") == ["done", "done", "failed"]
        assert sweep.of_arms("attempts") == [1, 3, 3]


def test_a_task_that_calls_exit_ends_its_own_arm_only(tmp_path: Path) -> None:
    with application(tmp_path, "raise SystemExit(3 * (number == 0))", "x=1,2") as sweep:
        assert sweep.end() == 1
        assert sweep.of_arms("status") == ["failed", "done"]
        assert sweep.arms[0]["reason"] == "the task called exit(3)"


def test_arms_side_by_side_never_share_a_host_and_have_as_many_each(tmp_path: Path) -> None:
    command = ("x=1,2,3,4,5", "hydra.launcher.max_parallel=2")
    with application(tmp_path, "time.sleep(0.4)", *command, config=CLUSTER) as sweep:
        assert sweep.end() == 0
        ends = {note["arm"]: note["at"] for note in sweep.notes if note["kind"] == "end"}
        begun = [note for note in sweep.notes if note["kind"] == "begin"]
        assert all(len(note["hosts"]) == 2 for note in begun)
        overlaps = 0
        for one in begun:
            for other in begun:
                if one["arm"] < other["arm"] and one["at"] < ends[other["arm"]] and other["at"] < ends[one["arm"]]:
                    overlaps += 1
                    assert not set(one["hosts"]) & set(other["hosts"])
        assert overlaps >= 2
        assert len({note["pid"] for note in begun}) == 2, "a process is used again: its agents are warm"
        assert "[arm 3] hello from 3" in sweep.output


def test_one_host_is_never_shared(tmp_path: Path) -> None:
    one = "cluster: {controller: {port: 0}, workers: [{host: a}]}\n"
    with application(tmp_path, "pass", "x=1,2", "hydra.launcher.max_parallel=4", config=one) as sweep:
        assert sweep.end() == 0
        assert [note["kind"] for note in sweep.notes] == ["begin", "end", "begin", "end"]
        assert "the cluster has one host: arms run one after another" in sweep.output


def test_arms_side_by_side_with_one_fixed_port_are_refused_before_any_begins(tmp_path: Path) -> None:
    command = ("x=1,2", "hydra.launcher.max_parallel=2", "cluster.controller.port=4000")
    with application(tmp_path, "pass", *command, config=CLUSTER) as sweep:
        assert sweep.end() == 1
        assert "cluster.controller.port=4000: arms side by side cannot share a port" in sweep.output
        assert sweep.begun() == []


def test_a_process_that_dies_is_its_arms_failure_alone(tmp_path: Path) -> None:
    dies = "if number == 0: os.kill(os.getpid(), signal.SIGKILL)"
    with application(tmp_path, dies, "x=1,2,3", "hydra.launcher.max_parallel=2") as sweep:
        assert sweep.end() == 1
        assert sweep.of_arms("status") == ["failed", "done", "done"]
        assert sweep.arms[0]["reason"] == "its process was killed by SIGKILL"


def test_what_cannot_leave_its_process_is_said(tmp_path: Path) -> None:
    with application(tmp_path, "return threading.Lock()", "x=1,2", "hydra.launcher.max_parallel=2") as sweep:
        assert sweep.end() == 1
        assert "the task returned what cannot leave its process" in sweep.arms[0]["reason"]


@pytest.mark.parametrize(
    ("side", "number"),
    [([], signal.SIGINT), (["hydra.launcher.max_parallel=2"], signal.SIGINT),
     (["hydra.launcher.max_parallel=2"], signal.SIGTERM)],
    ids=["in turn, INT", "side by side, INT", "side by side, TERM"],
)  # fmt: skip
def test_a_signal_ends_the_running_arms_and_no_other_begins(
    tmp_path: Path, side: list[str], number: signal.Signals
) -> None:
    with application(tmp_path, SLEEPS, "x=1,2,3,4", *side) as sweep:
        running = 2 if side else 1
        sweep.until(lambda: len(sweep.begun()) == running)
        os.kill(sweep.process.pid, number)
        assert sweep.end(10.0) != 0
        assert len(sweep.begun()) == running
        assert sweep.of_arms("status") == ["interrupted"] * 4
        assert sweep.of_arms("attempts") == [1] * running + [0] * (4 - running)
        assert not any(alive(pid) for pid in sweep.family)


def test_processes_of_arms_end_with_the_launcher_however_it_ends(tmp_path: Path) -> None:
    with application(tmp_path, SLEEPS, "x=1,2,3", "hydra.launcher.max_parallel=2") as sweep:
        sweep.until(lambda: len(sweep.begun()) == 2)
        assert len(sweep.family) == 2
        os.kill(sweep.process.pid, signal.SIGKILL)
        assert wait_gone(sweep.family, 2.0) < 2.0


def test_wrong_keys_of_the_launcher_are_told_together(tmp_path: Path) -> None:
    wrong = ("hydra.launcher.on_failure=perhaps", "hydra.launcher.retries=-1", "hydra.launcher.max_parallel=0",
             "hydra.launcher.skip_completed=5", "+hydra.launcher.patience=3")  # fmt: skip
    with application(tmp_path, "pass", "x=1,2", *wrong) as sweep:
        assert sweep.end() == 1
        for words in ("on_failure=perhaps: must be continue or stop", "retries=-1: must be a whole number >= 0",
                      "max_parallel=0: must be a whole number >= 1", "skip_completed=5: must be true or false",
                      "patience=3: there is no such key"):  # fmt: skip
            assert f"hydra.launcher.{words}" in sweep.output
        assert sweep.begun() == []
