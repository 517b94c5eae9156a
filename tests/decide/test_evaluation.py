"""The trial of one evaluation batch before the first window, and who runs evaluations."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.decide.messages import CallbackResult, End, FormGroup, GroupFormed, RunWindow
from flodl.spec.component import Component
from flodl.spec.job import CallbacksConfig, EvalConfig, StopConfig
from flodl.spec.stop import EarlyConfig, TargetConfig
from tests.decide.hands import Hand, only

OWN = Component(target="mine.judge", partial=True)
GOOD = CallbackResult(name="eval", ok=True, values={"loss": 2.3, "accuracy": 0.1})


def tried(trial: CallbackResult | None, **blocks: Any) -> Hand:
    """Two ranks in the group; rank 0 tells what came of its trial."""
    hand = Hand(num_ranks=2, **blocks)
    hand.ready(0)
    hand.ready(1)
    hand.formed(1)
    hand.tell(GroupFormed(at=hand.later(), rank=0, generation=1, last_round=0, digest="start", trial=trial))
    return hand


def test_the_rank_that_would_evaluate_is_told_to_try() -> None:
    for policy, rank in (("fastest", 0), (1, 1)):
        hand = Hand(num_ranks=2, callbacks=CallbacksConfig(policy=policy))  # type: ignore[arg-type]
        hand.ready(0)
        assert only(FormGroup, hand.ready(1)).trial == rank


def test_where_nothing_is_ever_evaluated_nothing_is_tried() -> None:
    hand = Hand(num_ranks=2, eval=EvalConfig(every_epochs=None, at_end=False))
    hand.ready(0)
    assert only(FormGroup, hand.ready(1)).trial is None


def test_a_trial_that_went_well_costs_nothing() -> None:
    hand = tried(GOOD)
    assert len([command for command in hand.said if isinstance(command, RunWindow)]) == 2
    assert hand.coordinator.view().eval == {}


def test_a_broken_evaluation_ends_the_run_before_its_first_window() -> None:
    hand = tried(CallbackResult(name="eval", ok=False, error="KeyError: 'label'"))
    end = only(End, hand.said)
    assert (end.status, end.exit_code) == ("failed", 3)
    assert "rank 0 (cpu of here): one batch was evaluated before the first window, and that failed" in end.reason
    assert "KeyError: 'label'" in end.reason


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ({"eval": EvalConfig(metrics=("acuracy",))}, "eval.metrics[0]=acuracy: an evaluation tells accuracy, loss"),
        ({"stop": StopConfig(early=EarlyConfig(metric="top5"))}, "stop.early.metric=top5: an evaluation tells"),
        (
            {"stop": StopConfig(target=TargetConfig(metric="f1", value=1.0))},
            "stop.target.metric=f1: an evaluation tells",
        ),
    ],
)
def test_a_figure_that_no_evaluation_tells_is_refused_with_what_there_is(blocks: dict[str, Any], told: str) -> None:
    end = only(End, tried(GOOD, **blocks).said)
    assert (end.status, end.exit_code) == ("failed", 2)
    assert told in end.reason


def test_a_near_name_is_suggested() -> None:
    end = only(End, tried(GOOD, eval=EvalConfig(metrics=("acuracy",))).said)
    assert "did you mean accuracy?" in end.reason


def test_a_figure_of_a_data_set_without_an_evaluation_part_is_refused() -> None:
    none = CallbackResult(name="eval", ok=True)
    assert only(End, tried(none, eval=EvalConfig(metrics=("loss",))).said).exit_code == 2
    assert [type(command) for command in tried(none).said] == [RunWindow, RunWindow]
    own = tried(none, eval=EvalConfig(metrics=("loss",)), callbacks=CallbacksConfig(eval_fn=OWN))
    assert "eval.metrics[0]=loss: callbacks.eval_fn gives no figure" in only(End, own.said).reason


def test_a_figure_of_training_is_not_looked_for_in_an_evaluation() -> None:
    hand = tried(GOOD, stop=StopConfig(early=EarlyConfig(metric="train_loss")))
    assert not any(isinstance(command, End) for command in hand.said)


def test_the_role_goes_to_the_fastest_rank_once_there_are_timings() -> None:
    hand = Hand(num_ranks=2, num_samples=400)
    hand.start()
    for _ in range(30):
        hand.round(ms=[25.0, 10.0])
        asked = [c for c in hand.said if isinstance(c, RunWindow) and c.callbacks]
        if asked:
            break
    assert [command.to for command in asked] == [(1,)]
