"""A run's figures by name, and what a sweep is told of a run."""

from __future__ import annotations

import math

from flodl.decide.totals import training_figures
from flodl.record.figures import of_epoch, of_objective, of_result
from flodl.spec.codec import decode_job
from flodl.spec.job import JobSpec
from tests.record.figures import epoch, run_result
from tests.spec.trees import tree


def asking(*names: str) -> JobSpec:
    return decode_job(tree() | {"objective": names[0] if len(names) == 1 else list(names)})


def test_an_epoch_tells_of_training_evaluation_and_every_rank() -> None:
    told = of_epoch(epoch(1, scalars={"größe/λ": 2.0}, eval={"accuracy": 0.9}))
    assert told["epoch"] == 2, "people count epochs from 1"
    assert (told["train/loss"], told["train/größe/λ"], told["eval/accuracy"]) == (0.375, 2.0, 0.9)
    assert (told["rank/0/batches"], told["rank/1/batches"]) == (20, 8)
    assert "train/loss" not in of_epoch(epoch(1, loss=None)), "what is not finite is absent"


def test_a_figure_of_the_steps_that_is_called_loss_does_not_pass_for_the_loss() -> None:
    named = {"loss": 64.0, "kl": 2.0}
    assert of_epoch(epoch(1, loss=0.5, scalars=named))["train/loss"] == 0.5
    assert "train/loss" not in of_epoch(epoch(1, loss=None, scalars=named))
    assert training_figures(epoch(1, loss=0.5, scalars=named)) == {"loss": 0.5, "kl": 2.0}


def test_a_sweep_is_told_the_evaluated_loss_else_that_of_training() -> None:
    assert of_objective(asking("auto"), run_result()) == (0.1, "")
    assert of_objective(asking("auto"), run_result(eval={})) == (0.21, "")


def test_a_sweep_is_told_any_figure_of_the_result_or_several() -> None:
    found, warning = of_objective(asking("eval/accuracy", "wall_seconds"), run_result())
    assert (found, warning) == ((0.9694, 10.0), "")
    assert of_result(run_result())["rounds"] == 12.0


def test_what_a_run_does_not_have_is_none_and_told_with_what_it_has() -> None:
    found, warning = of_objective(asking("eval/f1"), run_result())
    assert found is None
    assert "objective=eval/f1: the run has no such figure; it has anchor" in warning
    assert "eval/accuracy" in warning


def test_what_a_diverged_run_learned_is_infinitely_bad_whatever_was_evaluated_before() -> None:
    lost = run_result(train_loss=None)
    assert of_objective(asking("auto"), lost) == (math.inf, "")
    assert of_objective(asking("eval/accuracy"), lost) == (-math.inf, "")
    assert of_objective(asking("wall_seconds"), lost) == (10.0, ""), "it took its time all the same"
