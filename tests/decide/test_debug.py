"""What ranks may say of themselves, and runs that look for faults."""

from __future__ import annotations

from flodl.decide.messages import Alert, Average, End, Finish, FormGroup
from flodl.spec.debug import DebugConfig
from flodl.spec.job import EvalConfig, TrainerConfig
from tests.decide.hands import Hand, only


def test_what_ranks_compute_in_is_said_when_all_are_ready() -> None:
    hand = Hand(num_ranks=3)
    hand.ready(0, precision="bfloat16", is_compiled=True)
    hand.ready(1)
    formed = only(FormGroup, hand.ready(2))
    assert formed.reason.endswith("bfloat16, compiled: rank 0; float32: ranks 1, 2")
    assert only(FormGroup, Hand(num_ranks=1).ready(0)).reason.endswith("; float32")


def test_a_rank_that_learned_nothing_of_a_batch_weighs_less() -> None:
    hand = Hand()
    hand.start()
    hand.done(0, skipped_batches=1, skipped_samples=10)
    average = only(Average, hand.done(1))
    assert average.masses == (90.0, 100.0)


def test_a_ranks_remark_is_told() -> None:
    hand = Hand()
    hand.start()
    told = only(Alert, hand.done(0, notes=("out of memory with 64 samples at a time",)))
    assert (told.rank, told.text) == (0, "rank 0 (cpu of here): out of memory with 64 samples at a time")


def test_skipped_batches_are_counted() -> None:
    hand = Hand(trainer=TrainerConfig(num_epochs=1, batch_size=10, limit_batches=20))
    hand.start()
    hand.round(skipped_batches=2, skipped_samples=20)
    (epoch,) = [command.metrics for command in hand.said if hasattr(command, "metrics")]
    assert [rank.skipped_batches for rank in epoch.ranks] == [2, 2]


def _ended_everywhere() -> Hand:
    hand = Hand(
        trainer=TrainerConfig(num_epochs=1, batch_size=10, limit_batches=2),
        debug=DebugConfig(eval_everywhere=True),
        eval=EvalConfig(every_epochs=None),
    )
    hand.start()
    hand.round()
    return hand


def test_every_rank_evaluates_where_the_job_asks_for_it() -> None:
    hand = _ended_everywhere()
    assert only(Finish, hand.said).callbacks == ("eval", "save")
    hand.goodbye(0)
    assert only(Finish, hand.said).callbacks == ("eval",)
    end = only(End, hand.goodbye(1))
    assert (end.status, end.exit_code) == ("done", 0)


def test_a_rank_that_cannot_evaluate_fails_such_a_run() -> None:
    hand = _ended_everywhere()
    hand.goodbye(0)
    end = only(End, hand.goodbye(1, failed=("eval",)))
    assert (end.status, end.exit_code) == ("failed", 4)
    assert "rank 1 (cpu of here): the evaluation" in end.reason
