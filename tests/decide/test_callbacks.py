"""Who evaluates and saves, and what comes of it."""

from __future__ import annotations

from flodl.decide.callbacks import Callbacks
from flodl.decide.messages import CallbackResult

MS = {0: 20.0, 1: 10.0, 2: None, 3: 10.0}


def ms() -> dict[int, float | None]:
    return dict(MS)


def test_the_fastest_rank_has_the_role_and_the_lower_of_equals() -> None:
    assert Callbacks().elect("fastest", [0, 1, 2, 3], ms) == 1


def test_the_role_is_sticky_and_moves_on_a_death_only() -> None:
    roles = Callbacks()
    assert roles.elect("fastest", [0, 1, 2, 3], ms) == 1
    assert roles.elect("fastest", [0, 1, 2, 3], lambda: {0: 1.0, 1: 99.0}) == 1
    assert roles.elect("fastest", [0, 2, 3], ms) == 3


def test_before_any_timing_the_lowest_rank_has_the_role() -> None:
    assert Callbacks().elect("fastest", [0, 1], lambda: {0: None, 1: None}) == 0


def test_the_rank_that_the_user_named_has_the_role_while_it_lives() -> None:
    roles = Callbacks()
    assert roles.elect(0, [0, 1, 2, 3], ms) == 0
    assert roles.elect(0, [1, 2, 3], ms) == 1


def test_a_failed_save_is_tried_by_the_next_fastest_rank_that_has_not_tried() -> None:
    roles = Callbacks(rank=0)
    tried: list[int | None] = []
    while (saver := roles.next_saver([0, 1, 2, 3], ms)) is not None:
        roles.tried.append(saver)
        tried.append(saver)
        assert roles.take(CallbackResult(name="save", ok=False, error="disk full")).endswith("disk full")
    assert tried == [0, 1, 3, 2]


def test_an_evaluations_values_and_time_are_remembered() -> None:
    roles = Callbacks(eval_due=4)
    roles.begin_eval(1)
    assert (roles.eval_due, roles.running, roles.runner) == (None, 4, 1)
    assert roles.take(CallbackResult(name="eval", ok=True, values={"accuracy": 0.9}, seconds=0.2)) == ""
    assert (roles.running, roles.results, roles.slack_ms) == (None, {"accuracy": 0.9}, 200.0)


def test_the_slack_is_the_mean_of_the_last_three_evaluations() -> None:
    roles = Callbacks()
    assert roles.slack_ms == 0.0
    for seconds in (9.0, 0.1, 0.2, 0.3):
        roles.take(CallbackResult(name="eval", ok=True, seconds=seconds))
    assert abs(roles.slack_ms - 200.0) < 1e-9


def test_a_failed_evaluation_is_reported_with_its_epoch_and_keeps_the_last_values() -> None:
    roles = Callbacks(results={"accuracy": 0.8})
    roles.begin_eval(0, epoch=3)
    assert (
        roles.take(CallbackResult(name="eval", ok=False, error="no memory"))
        == "the evaluation of epoch 4 failed: no memory"
    )
    assert roles.results == {"accuracy": 0.8}
    late = roles.take(CallbackResult(name="eval", ok=False, error="no memory"))
    assert late == "the evaluation at the end failed: no memory"


def test_an_evaluation_is_lost_with_the_rank_that_runs_it() -> None:
    roles = Callbacks()
    roles.begin_eval(2, epoch=1)
    assert roles.lose(0) == ""
    assert roles.lose(2) == "the evaluation of epoch 2 is lost with rank 2"
    assert roles.lose(2) == ""
