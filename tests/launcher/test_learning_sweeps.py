"""A sweep that learns from its arms: Hydra's Optuna sweeper, where it is installed, and what it is told of odd arms."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn, JobStatus

from flodl.errors import NotReady, RunFailed
from hydra_plugins.flodl_ssh._workshop import told_return
from tests.launcher.sweeping import flodl

SHORT = ("cluster=rehearsal", "elche=cpu_cadence", "model=mlp", "trainer.num_epochs=1", "trainer.limit_batches=20")


def test_a_study_finds_the_better_rate_and_bears_one_that_diverges(tmp_path: Path) -> None:
    if importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None:
        pytest.skip("hydra-optuna-sweeper is not installed: pip install 'flodl[optuna]'")
    study = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_jobs=1", "optim.lr=1e-4,0.1,1e30")
    with flodl(tmp_path, *study, *SHORT) as sweep:
        assert sweep.end() == 0, sweep.output
        found = next(tmp_path.rglob("optimization_results.yaml"))
        arms = json.loads((found.parent / "comparison.json").read_text())["arms"]
        losses = {arm["overrides"][0]: arm["result"]["eval"].get("loss") for arm in arms}
        assert len(losses) == 3
        best = found.read_text()
        assert "optim.lr: 0.1" in best
        assert f"best_value: {losses['optim.lr=0.1']}" in best


def test_an_arm_that_was_lost_to_infinity_is_a_result_and_one_that_failed_is_an_error() -> None:
    failed = JobReturn(overrides=["optim.lr=1e30"], status=JobStatus.FAILED)
    lost = RunFailed("not finite in 3 rounds in a row")
    failed.return_value = lost
    with pytest.raises(RunFailed):
        _ = told_return(failed, NotReady("no")).return_value
    lost.objective = math.inf
    assert told_return(failed, lost).return_value == math.inf
