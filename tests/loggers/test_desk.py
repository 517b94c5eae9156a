"""The desk: every logger hears all of a run, in a thread of its own; one that fails or hangs costs the run nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from flodl import courier, desk, trainer
from flodl.decide.messages import CallbackResult, EpochEnded
from flodl.desk import Desk, made, tell_sweep
from flodl.errors import ConfigError
from flodl.record.folder import RunFolder
from flodl.record.result import read_result
from flodl.record.sweep import SweepFolder
from flodl.report.arm import Arm
from flodl.report.compare import compare, comparison_json
from flodl.spec.codec import canonical_json, decode_job, sha256
from flodl.spec.job import JobSpec
from tests.loggers.services import Failing, Hanging, Listening
from tests.record.figures import epoch, run_result, window_done
from tests.spec.trees import tree

SERVICES = "tests.loggers.services"
TOLD_OF_HOSTS = {"host", "local_devices", "speed", "batch_size", "micro_batch", "precision", "compile", "num_workers"}


def job(**loggers: str) -> JobSpec:
    named = {name: {"_target_": f"{SERVICES}.{kind}"} for name, kind in loggers.items()}
    return decode_job(tree() | {"logger": named, "trusted_targets": [SERVICES]})


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    for kind in (Listening, Failing, Hanging):
        kind.heard.clear()
    Hanging.let.clear()
    yield
    Hanging.let.set()


def told(folder: Path, of: JobSpec, said: list[str]) -> Desk:
    """A desk that has heard of an epoch and of its late evaluation."""
    place = RunFolder.adopt(folder)
    place.sweep = folder.parent
    found = Desk(place, said.append)
    found.open(of)
    found.observe(window_done(0, 2), (EpochEnded(metrics=epoch(0, scalars={"größe/λ": 2.0}), reason=""),))
    late = CallbackResult(name="eval", ok=True, values={"accuracy": 0.9}, epoch=0)
    saved = CallbackResult(name="save", ok=True, values={"bytes": 100.0}, epoch=0)
    found.observe(window_done(1, 2, late, saved), ())
    return found


def test_a_logger_hears_of_a_run_from_beginning_to_end(tmp_path: Path) -> None:
    said: list[str] = []
    told(tmp_path, job(mine="Listening"), said).conclude(run_result())
    (_, run), (_, first), (_, late), (_, end) = Listening.heard
    assert (run.folder, run.sweep) == (str(tmp_path), str(tmp_path.parent))
    assert run.name == f"run {tmp_path.name}"
    assert run.parameters["optim._target_"] == "torch.optim.SGD"
    assert {key.split(".")[-1] for key in run.parameters if key.startswith("cluster.")} <= TOLD_OF_HOSTS
    assert not [key for key in run.parameters if key.startswith(("logger", "launch"))]
    assert (first[0], late) == (1792, (1792, {"eval/accuracy": 0.9})), "over samples, an evaluation where it belongs"
    assert (first[1]["train/größe/λ"], first[1]["rank/1/batches"]) == (2.0, 8)
    assert (end[0], end[1]["eval/accuracy"]) == ("done", 0.9694)
    assert threading.get_ident() not in Listening.threads
    assert said == []


def test_one_that_fails_is_told_once_and_the_others_go_on(tmp_path: Path) -> None:
    said: list[str] = []
    told(tmp_path, job(bad="Failing", good="Listening"), said).conclude(run_result())
    (text,) = said
    assert text.startswith("warning: logger bad failed: ConnectionError: [red]the service is gone[/red]; the run goes")
    assert [kind for kind, _ in Failing.heard] == ["begin", "log"]
    assert [kind for kind, _ in Listening.heard] == ["begin", "log", "log", "end"]


def test_one_that_hangs_holds_up_neither_the_run_nor_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "END_SECONDS", 0.2)
    monkeypatch.setattr(courier, "MOST_WAITING", 5)
    said: list[str] = []
    begun = time.monotonic()
    there = told(tmp_path, job(slow="Hanging"), said)
    for number in range(1, 100):
        there.observe(window_done(0, 2), (EpochEnded(metrics=epoch(number), reason=""),))
    there.conclude(run_result())
    assert time.monotonic() - begun < 5.0
    assert said == ["warning: logger slow is 5 calls behind; the run goes on without it"]


def test_people_are_told_whose_last_words_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "END_SECONDS", 0.6)
    monkeypatch.setattr(desk, "PATIENCE_SECONDS", 0.1)
    said: list[str] = []
    told(tmp_path, job(good="Listening", slow="Hanging"), said).conclude(run_result())
    assert said == [
        "waiting for the last words of logger slow, at most 1 s; Ctrl-C ends the waiting",
        "warning: logger slow has not ended in time; the run goes on without it",
    ]


def test_a_run_that_failed_before_it_began_is_told_of_all_the_same(tmp_path: Path) -> None:
    found = Desk(RunFolder.adopt(tmp_path), print)
    found.open(job(mine="Listening"))
    assert Listening.heard == []
    found.conclude(run_result(samples_done=0))
    assert [kind for kind, _ in Listening.heard] == ["begin", "end"]
    assert Listening.heard[1][1] == ("done", {})


def test_what_cannot_be_made_is_refused_before_the_run_all_at_once() -> None:
    wrong = decode_job(tree() | {
        "trusted_targets": [SERVICES],
        "logger": {"a": {"_target_": f"{SERVICES}.Listening", "colour": "red"},
                   "b": {"_target_": f"{SERVICES}.Lacking"},
                   "c": {"_target_": "flodl.loggers.wandb.Wandb", "mode": "loud"}},
    })  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        made(wrong)
    first, second, third = map(str, caught.value.problems)
    assert "logger.a" in first
    assert "colour" in first
    assert second == ("logger.b: needs a_package_that_nobody_has, which is not installed here; "
                      "pip install 'flodl[services]'")  # fmt: skip
    assert "mode=loud is none of offline, online" in third


def test_a_logger_outside_the_packages_that_may_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"logger.x._target_=subprocess.Popen: lies outside"):
        made(decode_job(tree() | {"logger": {"x": {"_target_": "subprocess.Popen"}}}))


def test_a_sweeps_comparison_goes_once_to_each_logger_of_its_arms(tmp_path: Path) -> None:
    arms = []
    for name, of in (("0", job(mine="Listening")), ("1", job(mine="Listening")), ("2", job())):
        folder = RunFolder.adopt(tmp_path / name)
        folder.write_spec(canonical_json(of), sha256(of))
        folder.write_result(run_result())
        arms.append(Arm(name=name, overrides=(f"x={name}",), status="done", folder=name, result=run_result()))
    arms.append(Arm(name="3", overrides=("x=3",), status="skipped", reason="no GPUs", attempts=0))
    sweep = SweepFolder(tmp_path)
    sweep.write_comparison(comparison_json(compare(arms)), "| a table |")
    tell_sweep(sweep, print)
    ((kind, found),) = Listening.heard
    assert (kind, found.text) == ("compare", "| a table |")
    assert [(arm.name, arm.status) for arm in found.arms] == [("0", "done"), ("1", "done"), ("2", "done"),
                                                              ("3", "skipped")]  # fmt: skip
    assert found.arms[0].figures["eval/accuracy"] == 0.9694
    assert found.arms[3].figures == {}


def test_a_comparison_that_cannot_be_read_is_told_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    sweep = SweepFolder(tmp_path)
    tell_sweep(sweep, said.append)
    assert said == [], "there is none"
    sweep.write_comparison(b"{", "")
    tell_sweep(sweep, said.append)
    assert said[0].startswith("warning: no logger is told of the comparison: ")


def test_who_ends_a_run_while_its_page_is_made_finds_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> str:
        raise SystemExit

    monkeypatch.setattr(trainer, "leave_run_page", killed)
    folder = RunFolder.create(tmp_path)
    wrong = decode_job(tree() | {"trusted_targets": [SERVICES], "logger": {"a": {"_target_": f"{SERVICES}.Nobody"}}})
    with pytest.raises(SystemExit):
        trainer.run(wrong, folder, console=Console(quiet=True))
    assert read_result(folder.result_path).status == "failed"
