"""From the first ready rank to the first window: all or nothing, and one common start."""

from __future__ import annotations

from flodl.decide.messages import Alert, End, FormGroup, RunWindow
from flodl.spec.cluster import ClusterSpec, ControllerSpec, HostSpec, JoinSpec
from flodl.spec.job import TrainerConfig
from tests.decide.hands import Hand, only

DEGRADED = ClusterSpec(
    controller=ControllerSpec(join=JoinSpec(min_ranks=2)), workers=(HostSpec(host="here", local_devices="cpu:3"),)
)


def test_nothing_begins_before_all_ranks_are_ready() -> None:
    hand = Hand(num_ranks=3)
    assert hand.ready(0) == ()
    assert hand.ready(2) == ()
    group = only(FormGroup, hand.ready(1))
    assert (group.to, group.ranks, group.generation, group.source, group.accept_round) == (
        (0, 1, 2),
        (0, 1, 2),
        1,
        0,
        0,
    )
    assert "rank 0" in group.reason


def test_a_rank_that_says_ready_twice_and_a_rank_that_nobody_knows_change_nothing() -> None:
    hand = Hand(num_ranks=2)
    assert hand.ready(0) == ()
    assert hand.ready(0) == ()
    assert hand.ready(9) == ()
    assert only(FormGroup, hand.ready(1))
    assert hand.ready(1) == ()


def test_equal_digests_start_the_first_windows() -> None:
    hand = Hand(num_ranks=2)
    said = hand.start()
    assert [command.to for command in said] == [(0,), (1,)]
    assert all(isinstance(command, RunWindow) for command in said)
    assert hand.orders[0].rounds[0].number == 1


def test_different_digests_after_the_common_start_end_the_run() -> None:
    hand = Hand(num_ranks=3)
    for rank in range(3):
        hand.ready(rank)
    hand.formed(0, digest="a")
    hand.formed(1, digest="a")
    end = only(End, hand.formed(2, digest="b"))
    assert (end.status, end.exit_code) == ("failed", 3)
    assert "rank 2 (cpu of here)" in end.reason


def test_unequal_ranks_end_the_run_with_all_problems() -> None:
    hand = Hand(num_ranks=3)
    hand.ready(0)
    hand.ready(1, data_signature="other")
    end = only(End, hand.ready(2, fingerprint="other"))
    assert end.exit_code == 3
    assert "the data differ" in end.reason
    assert "the models' tensors differ" in end.reason
    assert hand.coordinator.over


def test_an_epoch_is_a_whole_number_of_batches_and_bounded_by_limit_batches() -> None:
    hand = Hand(num_ranks=1, num_samples=95)
    hand.start()
    assert hand.coordinator.snapshot()["state"]["ledger"]["epoch_samples"] == 90
    hand = Hand(num_ranks=1, num_samples=95, trainer=TrainerConfig(batch_size=10, limit_batches=3))
    hand.start()
    assert hand.coordinator.snapshot()["state"]["ledger"]["epoch_samples"] == 30


def test_a_wrong_key_told_by_a_rank_is_a_wrong_configuration() -> None:
    end = only(End, Hand().failed(1, "config", "model.depth=x: must be a number"))
    assert (end.status, end.exit_code) == ("failed", 2)
    assert end.reason == "rank 1 (cpu of here): model.depth=x: must be a number"


def test_every_other_failure_before_the_first_window_is_not_ready() -> None:
    for kind in ("not_ready", "step"):
        assert only(End, Hand().failed(0, kind)).exit_code == 3
    hand = Hand()
    hand.ready(0)
    hand.ready(1)
    assert only(End, hand.died(1)).exit_code == 3, "while the group forms"


def test_an_unknown_rank_that_dies_before_the_start_changes_nothing() -> None:
    assert Hand().died(7) == ()


def test_min_ranks_allows_a_degraded_start_loudly() -> None:
    hand = Hand(num_ranks=3, cluster=DEGRADED)
    hand.ready(0)
    hand.ready(1)
    said = hand.died(2, "no route to host")
    assert "starting without rank 2" in only(Alert, said).text
    assert only(FormGroup, said).ranks == (0, 1)
    hand.formed(0)
    assert {command.to for command in hand.formed(1)} == {(0,), (1,)}


def test_min_ranks_holds_while_the_group_forms_too() -> None:
    hand = Hand(num_ranks=3, cluster=DEGRADED)
    for rank in range(3):
        hand.ready(rank)
    assert only(FormGroup, hand.died(0)).source == 1
    assert only(End, hand.died(1)).exit_code == 3, "fewer than min_ranks are left"


def test_a_wrong_configuration_is_never_degraded_away() -> None:
    hand = Hand(num_ranks=3, cluster=DEGRADED)
    assert only(End, hand.failed(2, "config")).exit_code == 2


def test_a_stop_before_the_first_window_ends_at_once() -> None:
    end = only(End, Hand().stop("SIGINT"))
    assert (end.status, end.exit_code) == ("interrupted", 130)
    end = only(End, Hand().stop("stop.max_time", status="stopped"))
    assert (end.status, end.exit_code) == ("stopped", 0)
