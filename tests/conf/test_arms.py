"""What several arms mean together, and which of them was done before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flodl.arms import Arms, refuse_finished
from flodl.decide.messages import End
from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady, Problem, Skipped, TaskFindings
from flodl.record.folder import RunFolder
from flodl.record.result import result
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.job import JobSpec
from tests.conf.composing import job
from tests.record.figures import run, totals

TWO = "cluster.workers=[{host: a, nccl_socket_ifname: lo}, {host: b, nccl_socket_ifname: lo}]"


def raising(error: Exception) -> Callable[[], None]:
    def perform() -> None:
        raise error

    return perform


def concluded(*errors: Exception | None) -> FlodlError | Exception | None:
    arms = Arms()
    arms.told([((f"x={i}",), error) for i, error in enumerate(errors)])
    try:
        arms.conclude()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    return None


def finished(path: Path, done: JobSpec) -> Path:
    folder = RunFolder.adopt(path)
    folder.write_spec(canonical_json(done), sha256(done))
    folder.write_result(result(End(status="done", exit_code=0, totals=totals(), reason=""), run()))
    return path


def test_skipped_arms_are_no_failure_and_failed_ones_are() -> None:
    assert concluded(None, Skipped("done before")) is None
    failed = concluded(None, NotReady("no"), Skipped("done before"))
    assert isinstance(failed, TaskFindings)
    assert str(failed) == "1 of 3 arms failed"


def test_an_interrupted_sweep_ends_as_its_arms_did() -> None:
    found = concluded(Interrupted("a", exit_code=75), Interrupted("not started", exit_code=75))
    assert isinstance(found, Interrupted)
    assert found.exit_code == 75
    found = concluded(Interrupted("a", exit_code=75), Interrupted("b"), NotReady("no"))
    assert isinstance(found, Interrupted)
    assert found.exit_code == 130


def test_where_the_same_command_would_not_do_the_same_arms_none_is_named() -> None:
    for typed, is_told, onward in (
        (
            ["-m", "x=a b,1", "hydra.launcher.skip_completed=false"],
            True,
            "-m 'x=a b,1' hydra.launcher.skip_completed=true",
        ),
        (["-m", "x=1,2"], False, ""),
        (["-m", "hydra/sweeper=optuna"], True, ""),
    ):
        arms = Arms(typed=typed)
        arms.told([(["x=1"], Interrupted("a"))])
        arms.is_told = is_told
        with pytest.raises(Interrupted) as caught:
            arms.conclude()
        assert ("; to do these anew: python -m flodl " + onward in str(caught.value)) == bool(onward)


def test_a_signal_between_two_arms_leaves_the_first_as_it_ended_and_begins_no_other() -> None:
    arms = Arms(is_sweep=True)
    arms.attempt(["x=0"], arms.break_off)
    with pytest.raises(Interrupted, match="not started: a signal came"):
        arms.attempt(["x=1"], raising(AssertionError("was begun")))
    assert [arm.error is None for arm in arms.arms] == [True, False]
    with pytest.raises(Interrupted):
        arms.conclude()


def test_a_bug_in_one_arm_is_no_mere_failure() -> None:
    bug = KeyError("ours")
    assert concluded(NotReady("no"), bug) is bug


def test_the_launchers_word_replaces_what_was_gathered() -> None:
    arms = Arms(is_sweep=True)
    with pytest.raises(NotReady):
        arms.attempt(["x=1"], raising(NotReady("the first try")))
    arms.told([(["x=1"], None)])
    arms.conclude()


def test_an_arm_that_only_lacks_devices_is_skipped_in_a_sweep_and_refused_alone() -> None:
    wrong = ConfigError([Problem(key="elche.mode", constraint="NCCL needs GPUs", is_rigs=True)])
    sweep = Arms(is_sweep=True)
    with pytest.raises(Skipped, match="NCCL needs GPUs"):
        sweep.attempt(["x=1"], raising(wrong))
    sweep.conclude()
    alone = Arms()
    alone.attempt(["x=1"], raising(wrong))
    with pytest.raises(ConfigError):
        alone.conclude()


@pytest.mark.usefixtures("composing")
def test_modes_of_one_device_are_one_arm_and_those_of_several_are_not() -> None:
    one, two = "cluster.workers.0.local_devices=cpu:1", "cluster=rehearsal"
    arms = Arms(is_sweep=True)
    arms.refuse_same(job(["elche=cpu_sync", one]), ["elche=cpu_sync"])
    with pytest.raises(Skipped, match="averages nothing, so this is the same as elche=cpu_sync; name a cluster"):
        arms.refuse_same(job(["elche=cpu_async", one]), ["elche=cpu_async"])
    arms.refuse_same(job(["elche=cpu_async", one, "trainer.seed=1"]), ["elche=cpu_async", "trainer.seed=1"])
    for mode in ("cpu_sync", "cpu_async"):
        arms.refuse_same(job([f"elche={mode}", two]), [f"elche={mode}"])
    alone = Arms()
    for mode in ("cpu_sync", "cpu_async"):
        alone.refuse_same(job([f"elche={mode}", one]), [f"elche={mode}"])


@pytest.mark.usefixtures("composing")
def test_the_same_job_is_found_and_another_is_not(runs: Path) -> None:
    place = finished(runs / "0", job(["trainer.seed=1"]))
    refuse_finished(job(["trainer.seed=2"]), [runs], hosts_may_differ=False)
    with pytest.raises(Skipped) as caught:
        refuse_finished(job(["trainer.seed=1"]), [runs], hosts_may_differ=False)
    assert caught.value.folder == str(place)


@pytest.mark.usefixtures("composing")
def test_on_leased_hosts_it_does_not_matter_which_ones_but_how_many(runs: Path) -> None:
    finished(runs / "0", job([TWO]))
    others = job([TWO.replace("host: a", "host: c")])
    refuse_finished(others, [runs], hosts_may_differ=False)
    with pytest.raises(Skipped):
        refuse_finished(others, [runs], hosts_may_differ=True)
    refuse_finished(job(["cluster.workers=[{host: a}]"]), [runs], hosts_may_differ=True)
