"""A run that stopped and goes on: as if it had not, in real processes and by the whole command."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from flodl.decide.messages import Resumed, RunWindow, WindowDone
from flodl.decide.pace import Pace
from flodl.record.bundle import BundleStore
from tests.e2e.command import LONG, command
from tests.e2e.journals import audit, carried_out, end_of, job_of, journal

PAIR = (
    "cluster=local",
    "cluster.workers=[{host: localhost, local_devices: 'cpu:2'}]",
    "model=mlp",
    "trainer.num_epochs=2",
    "trainer.batch_size=16",
    "eval=off",
)
EPOCH = 93 * 16  # samples of digits in whole batches
LARGE = 23 * 64  # the same in batches of 64
SMALL = 374 * 4  # and of 4


def weights(folder: Path) -> dict[str, Any]:
    return load_file(folder / "checkpoints" / "weights.safetensors")


def newest_outer(folder: Path) -> tuple[int, dict[str, Any]]:
    """The round of the newest bundle, and its outer member."""
    number = json.loads((folder / "checkpoints" / "model.meta.json").read_text())["round"]
    return number, load_file(folder / "checkpoints" / f"model.r{number}.outer.fdl")


@pytest.mark.parametrize("optim", [("optim=sgd",), ("optim=adamw", "scheduler=cosine")])
def test_a_resumed_run_ends_with_the_parameters_of_one_that_did_not_stop(
    tmp_path: Path, optim: tuple[str, ...]
) -> None:
    job = (*PAIR, *optim, "elche=cpu_sync", "trainer.deterministic=true")
    carried_out(tmp_path, *job, "hydra.run.dir=whole")
    carried_out(tmp_path, *job, "hydra.run.dir=first", f"stop.max_samples={int(0.37 * EPOCH)}")
    stopped = end_of(tmp_path / "first").totals
    assert 0.37 * EPOCH <= stopped.samples_done < EPOCH
    carried_out(tmp_path, "task=resume", "run=first", "stop.max_samples=null", "hydra.run.dir=second")
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "second")
    assert one.keys() == other.keys()
    assert max(float(abs(one[name] - other[name]).max()) for name in one) <= 1e-6
    assert end_of(tmp_path / "second").totals.samples_done == 2 * EPOCH
    assert audit(tmp_path / "second") == (0, 0)


def test_in_a_cadence_each_rank_gets_back_what_it_held_and_runs_the_stored_quota(tmp_path: Path) -> None:
    job = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=3", "trainer.batch_size=4", "elche=cpu_cadence")
    job += ("elche.max_anchor=10",)  # so that an epoch has many windows on a busy machine, too
    job += ("outer=diloco", f"trainer.ema={SMALL}")
    carried_out(tmp_path, *job, "eval=off", "hydra.run.dir=first", f"stop.max_samples={int(1.37 * SMALL)}")
    carried_out(tmp_path, "task=resume", "run=first", "stop.max_samples=null", "hydra.run.dir=second")
    entries = journal(tmp_path / "second")
    resumed = next(event for event, _ in entries if isinstance(event, Resumed))
    state = resumed.snapshot["state"]
    windows = [command for _, commands in entries for command in commands if isinstance(command, RunWindow)][:2]
    for window in windows:
        held = [tuple(piece) for piece in state["ledger"]["held"][str(window.to[0])]]
        assert [(piece.epoch, piece.start) for piece in window.ranges][: len(held)] == [piece[:2] for piece in held]
        assert "probe" not in window.reason
    assert windows[0].rounds[0].number == state["accepted"] + 1
    assert windows[0].rounds[0].samples_before == state["ledger"]["samples_done"]
    stored = Pace(job_of(tmp_path / "second"), (0, 1))
    stored.restore(resumed.snapshot["pace"])
    assert {w.to[0]: w.rounds[0].batches for w in windows} == stored.quotas(SMALL // 4, {}).by_rank
    assert end_of(tmp_path / "second").totals.samples_done == 3 * SMALL
    assert audit(tmp_path / "second") == (0, 0)
    rounds, outer = newest_outer(tmp_path / "second")
    assert outer["velocity/."] == rounds  # what an outer optimizer has taken in, over both runs
    assert outer["ema/."] == pytest.approx(1.0 - 0.5**3)  # of three half-lives
    assert (
        weights(tmp_path / "second").keys() == load_file(tmp_path / "second/checkpoints/weights.ema.safetensors").keys()
    )


LOUD = """
from flodl.steps.classification import Classification

class Step(Classification):
    def __call__(self, model, batch):
        return super().__call__(model, batch) * 1024.0  # so that the scale comes down by ten overflows
"""


def skipped(folder: Path) -> int:
    """Batches that overflowed in float16."""
    return sum(event.skipped_batches for event, _ in journal(folder) if isinstance(event, WindowDone))


def test_a_killed_run_goes_on_beside_training_with_its_elastic_center_and_its_scale(tmp_path: Path) -> None:
    job = ("cluster=rehearsal", "model=mlp", "trainer.num_epochs=100000", "trainer.batch_size=4", "elche=cpu_async")
    job += ("elche.max_anchor=10", "elche.easgd_alpha=0.3", "eval=off", "hydra.run.dir=first")
    job += ("trainer.precision=float16", "step._target_=loud.Step", "optim.lr=1e-5")
    (tmp_path / "loud.py").write_text(LOUD)
    store = BundleStore(tmp_path / "first" / "checkpoints")
    with command(tmp_path, *job) as run:
        run.trains()
        run.until(lambda: len(store.bundles()) == 2)
        run.signal(signal.SIGKILL)
        run.end()
    bundle = store.load().bundle
    model, center = (load_file(path) for path in (bundle.path("model"), bundle.path("outer")) if path is not None)
    apart = [abs(value - model[f"model.param/{name.partition('/')[2]}"]).max() for name, value in center.items()]
    assert max(apart) > 0.0  # a center of its own, not the consensus
    epochs = bundle.meta.epoch + 2
    typed = (f"trainer.num_epochs={epochs}", "optim.weight_decay=0.02", "hydra.run.dir=second")
    carried_out(tmp_path, "task=resume", "run=first", *typed)
    told = (tmp_path / "second" / "journal.jsonl").read_text()
    assert "each rank has back what it held" in told
    assert "begins as the consensus" not in told
    assert "optim.weight_decay is 0.02 as it is asked now; it was 0.0005" in told
    windows = [order for _, orders in journal(tmp_path / "second") for order in orders if isinstance(order, RunWindow)]
    assert not any("probe" in window.reason for window in windows[:2])
    assert windows[0].rounds[0].number == bundle.round + 1
    assert skipped(tmp_path / "first") >= 16
    assert 4 * skipped(tmp_path / "second") < skipped(tmp_path / "first")
    assert end_of(tmp_path / "second").totals.samples_done == epochs * SMALL
    assert audit(tmp_path / "second") == (0, 0)


def test_an_interrupted_run_says_how_it_goes_on_and_another_world_size_takes_it_over(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.trains()
        run.signal(signal.SIGINT)
        assert run.end(30.0) == 75
        assert run.output.splitlines()[-1] == f"python -m flodl task=resume run={tmp_path / 'run'}"
    meta = json.loads((tmp_path / "run" / "checkpoints" / "model.meta.json").read_text())
    assert meta["reason"] == "interrupted"
    done = end_of(tmp_path / "run").totals.samples_done
    more = (f"trainer.num_epochs={done // LARGE + 3}", "hydra.run.dir=second", "eval=off")
    other = ("cluster=local", "cluster.workers=[{host: localhost, local_devices: 'cpu:3'}]")
    output = carried_out(tmp_path, "task=resume", f"run={tmp_path / 'run'}", *more, *other)
    assert "going on from" in output
    assert audit(tmp_path / "second") == (0, 0)
    assert end_of(tmp_path / "second").totals.samples_done % LARGE == 0


def test_another_seed_model_or_data_is_refused_by_its_first_difference(tmp_path: Path) -> None:
    carried_out(tmp_path, *PAIR, "trainer.limit_batches=4", "hydra.run.dir=first")
    refused = (
        ("trainer.seed=5", "trainer.seed=5: the bundle was saved with 0"),
        ("model.hidden=[31]", "the bundle has "),
        ("dataset=synthetic", "dataset: is another one"),
        ("trainer.num_epochs=2", "nothing is left to do"),
    )
    for number, (override, told) in enumerate(refused):
        epochs = () if "num_epochs" in override else ("trainer.num_epochs=3",)
        resume = ("task=resume", "run=first", override, *epochs)
        with command(tmp_path, *resume, f"hydra.run.dir=no-{number}") as run:
            assert run.end(60.0) == 2, run.output
            assert told in run.output


def test_a_run_can_be_evaluated_later(tmp_path: Path) -> None:
    carried_out(tmp_path, *PAIR, "trainer.limit_batches=4", "hydra.run.dir=first", "eval.at_end=true")
    found = json.loads(carried_out(tmp_path, "task=eval", "run=first", "json=true"))
    known = json.loads((tmp_path / "first" / "result.json").read_text())["eval"]
    assert found["eval"] == pytest.approx(known, rel=1e-5)
