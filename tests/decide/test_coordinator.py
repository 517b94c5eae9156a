"""The one mind from outside: tables, views, snapshots, and kindness to what comes late."""

from __future__ import annotations

import json

import msgspec
import pytest

from flodl.decide.coordinator import Coordinator
from flodl.decide.messages import Command, End, Event, RunWindow
from flodl.spec.job import TrainerConfig
from tests.decide.hands import Hand, only


def test_every_event_has_a_place_and_every_order_a_reason() -> None:
    hand = Hand(num_ranks=2, num_samples=100)
    hand.start()
    said: list[Command] = [*hand.said]
    while not hand.coordinator.over:
        said += hand.round() if hand.coordinator.view().activity == "training" else hand.goodbye(hand.said[-1].to[0])  # type: ignore[union-attr]
    assert all(command.reason for command in said)


def test_nothing_is_answered_after_the_end() -> None:
    hand = Hand()
    only(End, hand.stop())
    for told in (hand.ready(0), hand.died(1), hand.stop()):
        assert told == ()


def test_what_was_done_so_far_can_be_asked_at_any_time_and_is_what_the_end_would_say() -> None:
    hand = Hand()
    assert (hand.coordinator.totals().samples_done, hand.coordinator.totals().rounds) == (0, 0)
    hand.start()
    hand.round()
    so_far = hand.coordinator.totals()
    assert (so_far.rounds, so_far.samples_done > 0) == (1, True)
    hand.died(0)
    assert only(End, hand.died(1)).totals == msgspec.structs.replace(so_far, dead_ranks=(0, 1))


def test_the_view_tells_what_a_person_wants_to_see() -> None:
    hand = Hand(num_samples=400)
    before = hand.coordinator.view()
    assert (before.activity, before.progress, before.loss, before.phase, before.anchor) == (
        "gathering",
        0.0,
        None,
        "probe",
        10,
    )
    hand.start()
    hand.round()
    hand.round()
    view = hand.coordinator.view()
    assert (view.activity, view.epoch, view.num_epochs, view.rounds, view.phase) == ("training", 1, 2, 2, "warmup")
    assert view.progress == pytest.approx(400 / 800)
    assert view.loss == pytest.approx(0.5)
    assert view.shares == {0: 0.5, 1: 0.5}
    assert view.samples_per_second > 0
    json.loads(msgspec.json.encode(view))


@pytest.mark.parametrize("mode", ["cpu_cadence", "cpu_async", "cpu_sync"])
def test_a_restored_mind_answers_as_the_old_one_would(mode: str) -> None:
    hand = Hand(mode, 3, num_samples=600, trainer=TrainerConfig(num_epochs=2, batch_size=10))
    events: list[Event] = []
    tell = hand.tell

    def record(event: Event) -> tuple[Command, ...]:
        events.append(event)
        return tell(event)

    hand.tell = record  # type: ignore[method-assign]
    hand.start()
    hand.round(ms=[10.0, 12.0, 30.0])
    hand.done(0)
    hand.died(1)
    hand.formed(0, last_round=1)
    hand.formed(2, last_round=1)
    if mode != "cpu_sync":
        hand.done(2)
        hand.averaged(0)
        hand.averaged(2)
    else:
        hand.round(ms=[10.0, 12.0, 30.0])
    old = Coordinator(hand.job, hand.places)
    for index, event in enumerate(events):
        fresh = Coordinator(hand.job, hand.places)
        fresh.restore(json.loads(json.dumps(old.snapshot())))
        assert old.handle(event) == fresh.handle(event), f"event {index}: {event}"
        assert old.snapshot() == fresh.snapshot()


def test_the_decision_of_a_round_at_64_ranks_orders_64_windows_and_every_report_orders_nothing() -> None:
    hand = Hand(num_ranks=64, num_samples=64 * 400)
    hand.start()
    counts: list[int] = []
    for rank in range(64):
        counts.append(len(hand.done(rank)))
    assert counts == [0] * 63 + [1], "one Average for all"
    for rank in range(64):
        counts.append(len(hand.averaged(rank)))
    assert counts[64:] == [0] * 63 + [64]
    assert all(isinstance(command, RunWindow) for command in hand.said)
