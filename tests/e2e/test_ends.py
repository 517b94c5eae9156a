"""How a run ends when it is told to, and that nothing of it is left: real processes, the whole command."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flodl.decide.messages import EpochEnded
from tests.e2e.command import LONG, command
from tests.e2e.test_rules import told
from tests.engine.live import alive, wait_gone

LEFT_SECONDS = 5.0


def handles(pid: int, number: signal.Signals) -> bool:
    """True where the process has a handler for this signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


def ignoring(number: signal.Signals) -> Any:
    """Popen's preexec_fn for a parent that hands down an ignored signal: a shell's `&` (SIGINT), nohup (SIGHUP)."""
    return lambda: signal.signal(number, signal.SIG_IGN)


@pytest.mark.row(14)
@pytest.mark.parametrize(
    ("number", "popen"),
    [
        (signal.SIGINT, {"preexec_fn": ignoring(signal.SIGINT)}),
        (signal.SIGTERM, {"preexec_fn": ignoring(signal.SIGHUP)}),
        (signal.SIGHUP, {}),
    ],
    ids=["INT in the background", "TERM under nohup", "HUP"],
)
def test_a_first_signal_ends_the_run_at_the_next_round_with_the_weights(
    tmp_path: Path, number: signal.Signals, popen: dict[str, Any]
) -> None:
    with command(tmp_path, *LONG, **popen) as run:
        run.trains()
        if number is signal.SIGTERM:  # under nohup: a hangup changes nothing
            run.signal(signal.SIGHUP)
            lines = run.output.count("epoch ")
            run.until(lambda: run.output.count("epoch ") > lines + 5)
            assert "stopping at the next round" not in run.output
        begun = time.monotonic()
        run.signal(number)
        assert run.end(30.0) == 75
        assert time.monotonic() - begun < 15.0
        wait_gone(run.family, LEFT_SECONDS)
        assert run.result["status"] == "interrupted"
        assert number.name in run.result["reason"]
        assert run.result["rounds"] > 0
        assert "checkpoints/weights.safetensors" in run.result["checkpoints"]
        assert "run folder: run\nweights: run/checkpoints/weights.safetensors\n" in run.output


def test_a_second_signal_ends_everything_now_and_what_was_done_is_told(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.trains()
        run.until((tmp_path / "run" / "checkpoints" / "model.meta.json").exists)
        os.kill(run.rank(0), signal.SIGSTOP)  # so that no round can end the run
        run.signal(signal.SIGINT)
        run.until(lambda: "stopping at the next round: SIGINT" in run.output)
        begun = time.monotonic()
        run.signal(signal.SIGINT)
        assert run.end(LEFT_SECONDS) == 130
        wait_gone(run.family, LEFT_SECONDS - (time.monotonic() - begun))
        assert (run.result["status"], run.result["exit_code"]) == ("interrupted", 130)
        ended = [order for _, orders in told(run) for order in orders if isinstance(order, EpochEnded)]
        assert run.result["epochs_done"] == len(ended) > 0
        assert run.result["samples_done"] >= sum(order.metrics.samples for order in ended)
        assert sum(rank["samples"] for rank in run.result["per_rank"]) == run.result["samples_done"]
        assert run.output.splitlines()[-1] == f"python -m flodl task=resume run={tmp_path / 'run'}"


LOUD = """
import os, signal, time
class Loud:
    def begin(self, run): ...
    def log(self, figures, step, at): ...
    def end(self, status, figures):
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        time.sleep(60)
    def compare(self, sweep): ...
"""


@pytest.mark.row(14)
def test_signals_after_the_end_change_nothing_of_what_became_of_the_run(tmp_path: Path) -> None:
    """While ranks leave, the result is written, and loggers say their last words."""
    (tmp_path / "loud.py").write_text(LOUD)
    arguments = ("model=mlp", "trainer.num_epochs=1", "hydra.run.dir=run", "+logger.loud._target_=loud.Loud")
    with command(tmp_path, *arguments) as run:
        journal = tmp_path / "run" / "journal.jsonl"
        run.until(lambda: journal.is_file() and '"type":"End"' in journal.read_text())
        run.signal(signal.SIGINT)
        assert run.end(30.0) == 0
        assert (run.result["status"], run.result["exit_code"]) == ("done", 0)
        assert "done: the one epoch is done" in run.output
        assert (tmp_path / "run" / "report.html").is_file()


def test_a_killed_controller_with_a_stopped_rank_leaves_nothing_behind(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.trains()
        os.kill(run.rank(1), signal.SIGSTOP)
        run.signal(signal.SIGKILL)
        run.end()
        wait_gone(run.family, LEFT_SECONDS)


def test_a_killed_rank_that_ends_the_run_is_named_with_its_signal(tmp_path: Path) -> None:
    with command(tmp_path, *LONG, "membership.max_failure=1") as run:
        run.trains()
        os.kill(run.rank(1), signal.SIGKILL)
        assert run.end(30.0) == 4
        wait_gone(run.family, LEFT_SECONDS)
        assert run.result["status"] == "failed"
        assert "rank 1" in run.result["reason"]
        assert "SIGKILL" in run.result["reason"]
        assert run.result["dead_ranks"] == [1]
        assert "SIGKILL" in run.output


def test_a_signal_before_the_first_window_ends_the_start(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.until(lambda: "2 ranks on" in run.output)
        run.signal(signal.SIGINT)
        assert run.end(20.0) == 130
        assert run.result["rounds"] == 0


def test_a_killed_controller_leaves_nothing_behind_and_another_run_beside_it_is_not_touched(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    with command(folders[0], *LONG) as one, command(folders[1], *LONG) as two:
        one.trains()
        two.trains()
        assert len(one.family) >= 4  # agent, warm process, two ranks
        one.signal(signal.SIGKILL)
        one.end()
        wait_gone(one.family, LEFT_SECONDS)
        assert all(alive(pid) for pid in two.family)
        two.signal(signal.SIGTERM)
        assert two.end(30.0) == 75


def test_a_disk_that_fills_up_is_named_and_no_bug(tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    with command(tmp_path, *LONG, preexec_fn=little_room) as run:
        assert run.end(90.0) == 5
        assert "\nfailed: " in run.output
        assert "File too large" in run.output
        assert "bug" not in run.output
        assert run.result["status"] == "failed"
        assert "File too large" in run.result["reason"]
        assert (run.result["exit_code"], run.result["rounds"] > 0) == (5, True)
        assert "task=resume" not in run.output, "nothing was saved"


def test_a_run_whose_reader_is_gone_goes_on_to_its_end(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    job = (*LONG[:2], "elche=cpu_async", "trainer.num_epochs=2", "hydra.run.dir=run")
    with command(tmp_path, *job, stdout=write) as run:
        os.close(write)
        assert run.end(90.0) == 0
        assert (run.result["status"], run.result["epochs_done"], run.result["mode"]) == ("done", 2, "cpu_async")
        assert told(run), "and replays"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_there_is_a_run_is_an_interruption(tmp_path: Path, number: signal.Signals) -> None:
    with command(tmp_path, *LONG) as run:
        run.until(lambda: handles(run.process.pid, signal.SIGTERM))
        run.signal(number)
        assert run.end(30.0) == 130
        assert "Traceback" not in run.output
