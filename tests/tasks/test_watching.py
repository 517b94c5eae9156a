"""Looking at a run and ending it from outside: running, finished, crashed, somebody else's, no run at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from flodl.errors import NotReady, TaskFindings
from flodl.record.folder import RunFolder
from flodl.record.result import Run, failed_result
from flodl.record.status import read_status
from flodl.tasks import stop
from flodl.tasks.which import typed
from tests.decide.hands import Hand
from tests.engine.live import ROOT
from tests.tasks.conftest import Flodl

# A controller as the folder knows it: it says who it is, and does something at SIGTERM.
CONTROLLER = """
import os, signal, sys, time
from pathlib import Path
from flodl.errors import Interrupted
from flodl.record.folder import RunFolder
from flodl.record.result import Run, failed_result

folder = RunFolder(sys.argv[1])

def end(number, frame):
    folder.write_result(failed_result(Interrupted("SIGTERM"), Run(mode="solo", average="none", world_size=1)))
    sys.exit(130)

signal.signal(signal.SIGTERM, {"obeys": end, "ignores": signal.SIG_IGN, "crashes": signal.SIG_DFL}[sys.argv[2]])
folder.status.begin()
time.sleep(60)
"""


@pytest.fixture
def controller(here: Path) -> Iterator[Callable[[str], tuple[RunFolder, subprocess.Popen[bytes]]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str) -> tuple[RunFolder, subprocess.Popen[bytes]]:
        folder = run_here(here / "outputs" / "2026-01-01" / "10-00-00-abcd")
        process = subprocess.Popen([sys.executable, "-c", CONTROLLER, str(folder.path), kind],
                                   env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
        started.append(process)
        end = time.monotonic() + 60
        while not folder.status_path.exists():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        return folder, process

    yield start
    for process in started:
        process.kill()
        process.wait()


def run_here(path: Path) -> RunFolder:
    folder = RunFolder.adopt(path)
    folder.write_spec(b"{}", "0" * 64)
    return folder


def finished(folder: RunFolder) -> None:
    folder.write_result(failed_result(NotReady("no GPU"), Run(mode="solo", average="none", world_size=1)))


def told(folder: RunFolder, **changes: object) -> None:
    """A status of another controller than this process."""
    folder.status.begin()
    found = read_status(folder.status_path)
    assert found.controller is not None
    changed = msgspec.structs.replace(found, controller=msgspec.structs.replace(found.controller, **changes))
    folder.status_path.write_bytes(msgspec.json.encode(changed))


# ----------------------------------------------------------------------------------------------------------- stopping


def test_a_running_one_is_asked_to_stop_and_told_of(flodl: Flodl, controller: Callable) -> None:
    _, process = controller("obeys")
    watcher = threading.Thread(target=process.wait)  # as its parent does, so that it is no zombie
    watcher.start()
    done = flodl("task=stop")
    watcher.join()
    assert done.code == 0, done
    assert f"outputs/2026-01-01/10-00-00-abcd: asked its controller (process {process.pid}) to stop\n" in done.out
    assert "interrupted after 0 rounds (SIGTERM), exit code 130; nothing was saved" in done.out


def test_one_that_does_not_stop_is_waited_for_a_bounded_time(flodl: Flodl, controller: Callable) -> None:
    _, process = controller("ignores")
    begun = time.monotonic()
    done = flodl("task=stop", "wait_seconds=0.5")
    assert time.monotonic() - begun < 20
    assert done.code == 1
    assert "still runs 0.5 s after it was asked to stop" in done.err
    assert "python -m flodl task=stop run=outputs/2026-01-01/10-00-00-abcd" in done.err
    assert process.poll() is None


def test_one_that_ends_without_a_result_is_told_as_that(flodl: Flodl, controller: Callable) -> None:
    controller("crashes")
    done = flodl("task=stop")
    assert done.code == 1
    assert "its controller ended and left no result; the last of what it said is in outputs/" in done.err


def test_a_crashed_one_has_nothing_left_to_stop(flodl: Flodl, controller: Callable) -> None:
    _, process = controller("obeys")
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = flodl("task=stop")
    assert done.code == 0
    assert f"nothing to stop: its controller (process {process.pid}) ended without a result" in done.out


def test_nobody_else_of_the_same_number_is_signalled(flodl: Flodl, here: Path) -> None:
    """This very process has the number, and another start: were it signalled, the test would end."""
    told(run_here(here / "run"), start_ticks=1)
    done = flodl("task=stop", "run=run")
    assert done.code == 0
    assert "nothing to stop" in done.out


@pytest.mark.parametrize("changes", [{"boot": "another"}, {"namespace": "pid:[7]"}])
def test_a_run_of_another_machine_or_boot_is_left_alone(flodl: Flodl, here: Path, changes: dict[str, str]) -> None:
    told(run_here(here / "run"), host="attic", **changes)
    done = flodl("task=stop", "run=run")
    assert done.code == 1
    assert "run: was started on attic, or before this machine was, and last heard of at " in done.err
    assert "elsewhere: started on attic" in flodl("task=status", "run=run").out


def test_a_finished_one_is_told_as_it_ended(flodl: Flodl, here: Path) -> None:
    finished(run_here(here / "run"))
    done = flodl("task=stop", "run=run")
    assert done.code == 0
    assert "nothing to stop: failed after 0 rounds (no GPU), exit code 3; nothing was saved" in done.out


def test_one_that_nobody_has_spoken_for_is_no_success(flodl: Flodl, here: Path) -> None:
    run_here(here / "run")
    done = flodl("task=stop", "run=run")
    assert done.code == 1
    assert "nobody has said which process runs it" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_controller_is_told_as_that(controller: Callable) -> None:
    folder, process = controller("obeys")
    found = read_status(folder.status_path).controller
    assert found is not None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        try:
            stop.end_it(folder, found, 1.0)
        except TaskFindings as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        assert f"its controller (process {process.pid}) belongs to another user; stop it as that one" in said.read()
    assert process.poll() is None


# ----------------------------------------------------------------------------------------------------------- looking


def test_a_running_one_is_shown_with_how_to_end_it(flodl: Flodl, controller: Callable) -> None:
    _, process = controller("obeys")
    done = flodl("task=status")
    assert done.code == 0
    assert f"state       starting: process {process.pid}, last heard of 0:0" in done.out
    assert "to stop     python -m flodl task=stop run=outputs/2026-01-01/10-00-00-abcd\n" in done.out


def test_deaths_and_comebacks_are_shown(flodl: Flodl, here: Path) -> None:
    view = Hand(num_ranks=4).coordinator.view()
    changes = {"dead_ranks": (0, 1), "awaited_ranks": (1,), "restarts": {1: 2, 3: 1}}
    run_here(here / "run").status.write(msgspec.structs.replace(view, **changes))
    said = "rank 0 is dead, rank 1 is started again (restart 2), rank 3 is back (restart 1)"
    assert f"deaths      {said}\n" in flodl("task=status", "run=run").out


def test_a_finished_one_is_shown(flodl: Flodl, here: Path) -> None:
    finished(run_here(here / "run"))
    done = flodl("task=status", "run=run")
    assert done.code == 0
    assert "state       failed: no GPU (exit code 3)\n" in done.out


def test_a_crashed_one_is_a_finding(flodl: Flodl, here: Path) -> None:
    told(run_here(here / "run"), start_ticks=1)
    done = flodl("task=status", "run=run")
    assert done.code == 1
    assert f"state       gone: its controller (process {os.getpid()}) ended without a result" in done.out
    assert done.err == ""


def test_a_program_gets_one_document(flodl: Flodl, here: Path) -> None:
    finished(run_here(here / "run"))
    found = json.loads(flodl("task=status", "run=run", "json=true").out)
    assert (found["kind"], found["result"]["exit_code"], found["run"]) == ("finished", 3, str(here / "run"))


def test_a_damaged_file_is_told_in_words(flodl: Flodl, here: Path) -> None:
    run_here(here / "run").status_path.write_text("{")
    for task in ("status", "stop"):
        done = flodl(f"task={task}", "run=run")
        assert done.code == 4
        assert "status.json" in done.err
        assert "Traceback" not in done.err


# ------------------------------------------------------------------------------------------------------------- which


@pytest.mark.parametrize("task", ["status", "stop"])
def test_what_is_no_run_is_refused_in_words(flodl: Flodl, here: Path, task: str) -> None:
    (here / "empty").mkdir()
    assert "run=last: there is no run under outputs/ of this folder" in flodl(f"task={task}").err
    assert "run=nowhere: there is no such folder" in flodl(f"task={task}", "run=nowhere").err
    done = flodl(f"task={task}", "run=empty")
    assert done.code == 2
    assert "run=empty: is no run folder: it holds no spec.json" in done.err


def test_the_last_run_is_the_newest_and_may_be_an_arm(flodl: Flodl, here: Path) -> None:
    for i, name in enumerate(("2026-01-01/10-00-00-aaaa", "multirun/2026-01-01/11-00-00-b/1", "2026-01-01/09-00-00-c")):
        folder = run_here(here / "outputs" / name)
        finished(folder)
        os.utime(folder.spec_path, (1000 + (i if i < 2 else 0),) * 2)
    assert "run         outputs/multirun/2026-01-01/11-00-00-b/1\n" in flodl("task=status").out


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "a=b,c", "[x]", "größte", "a\\'b", "end\\", "{}", "~x"])
def test_a_folder_is_typed_so_that_it_is_read_back(here: Path, flodl: Flodl, name: str) -> None:
    finished(run_here(here / name))
    words = subprocess.run(["sh", "-c", f"printf %s {typed('run', name)}"], capture_output=True, text=True, check=True)
    done = flodl("task=status", words.stdout)
    assert done.code == 0, done
    assert f"run         {name}\n" in done.out


@pytest.mark.parametrize("words", [["trainer.seed=1"], ["elche=cpu_async"], ["launch.dry_run=true"]])
def test_what_changes_nothing_is_refused(flodl: Flodl, words: list[str]) -> None:
    done = flodl("task=stop", *words)
    assert done.code == 2
    assert "is ignored by task=stop" in done.err


@pytest.mark.parametrize("value", ["-1", "soon", "null", "true", ".nan"])
def test_a_time_to_wait_is_a_number(flodl: Flodl, here: Path, value: str) -> None:
    finished(run_here(here / "run"))
    done = flodl("task=stop", "run=run", f"wait_seconds={value}")
    assert done.code == 2
    assert "wait_seconds" in done.err


def test_a_broken_cluster_does_not_hinder_it(flodl: Flodl, here: Path) -> None:
    finished(run_here(here / "run"))
    file = here / "conf" / "cluster" / "broken.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("workers: ???\nnonsense: ${nowhere}\n")
    assert flodl("task=status", "run=run", "cluster=broken").code == 2, "typed beside it, it changes nothing"
    local = here / "conf" / "local" / "default.yaml"
    local.parent.mkdir(parents=True)
    local.write_text("# @package _global_\ndefaults: [{override /cluster: broken}]\n")
    assert flodl("task=status", "run=run").code == 0
