"""Stop rules as values, and what of them contradicts the rest of a job."""

from __future__ import annotations

import pytest

from flodl.spec.checks import contradictions, ineffective
from flodl.spec.job import EvalConfig, StopConfig
from flodl.spec.stop import EarlyConfig, TargetConfig, wants_less
from tests.scenarios.rigs import job_of

EARLY = StopConfig(early=EarlyConfig(metric="accuracy"))


@pytest.mark.parametrize(
    ("metric", "less"),
    [("loss", True), ("train_loss", True), ("bits_per_character", True), ("accuracy", False), ("f1", False)],
)
def test_what_is_better_is_guessed_by_the_name_and_may_be_said(metric: str, less: bool) -> None:
    assert wants_less(metric, "auto") is less
    assert wants_less(metric, "min")
    assert not wants_less(metric, "max")


def test_half_a_goal_is_refused() -> None:
    for half in (TargetConfig(metric="accuracy"), TargetConfig(value=0.9)):
        assert [p.key for p in half.problems("stop.target")] != []
    assert list(TargetConfig(metric="accuracy", value=0.9).problems("stop.target")) == []


def test_a_limit_of_no_time_is_refused() -> None:
    assert [p.key for p in StopConfig(max_time="0h0s").problems("stop")] == ["stop.max_time"]


def test_a_rule_needs_evaluations_that_happen_and_tell_its_figure() -> None:
    never = job_of("cpu_cadence", stop=EARLY, eval=EvalConfig(every_epochs=None))
    assert "there are none on the way" in str(next(contradictions(never)))
    others = job_of("cpu_cadence", stop=EARLY, eval=EvalConfig(metrics=("loss",)))
    assert "is not among eval.metrics=[loss]" in str(next(contradictions(others)))
    by_clock = job_of("cpu_cadence", stop=EARLY, eval=EvalConfig(every_epochs=None, every_minutes=5.0))
    assert list(contradictions(by_clock)) == []


def test_a_rule_on_training_needs_no_evaluation() -> None:
    rule = StopConfig(early=EarlyConfig(metric="train_loss"))
    assert list(contradictions(job_of("cpu_cadence", stop=rule, eval=EvalConfig(every_epochs=None)))) == []


def test_patience_without_a_figure_is_told_to_be_idle() -> None:
    found = ineffective(job_of("cpu_cadence", stop=StopConfig(early=EarlyConfig(patience=2))))
    assert [str(p) for p in found] == ["stop.early.patience=2: is ignored: stop.early.metric is null"]


def test_a_split_that_nobody_evaluates_is_told() -> None:
    off = EvalConfig(every_epochs=None, at_end=False, split="train")
    assert [p.key for p in ineffective(job_of("cpu_cadence", eval=off))] == ["eval.split"]
