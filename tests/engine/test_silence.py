"""Silence and eviction over a real link: who hears nothing is lost, who is declared dead is heard no more."""

from __future__ import annotations

import queue
import re
import time

import pytest

from flodl.decide.timeouts import Timeouts
from flodl.errors import FlodlError
from tests.engine.listening import SHORT, bye, listening


def test_a_rank_that_is_told_that_the_controller_lives_stays() -> None:
    patient = Timeouts(heartbeat=0.05, dead=1.0)  # many beats long: some may be late
    with listening(SHORT, patient) as (_, _link, lost), pytest.raises(queue.Empty):
        lost.get(timeout=1.5 * patient.dead)


def test_a_rank_that_hears_nothing_for_the_dead_limit_is_lost() -> None:
    with listening(Timeouts(heartbeat=60.0), SHORT) as (controller, _link, lost):
        begun = time.monotonic()
        told = re.fullmatch(r"nothing was heard from the controller for (\d+\.\d) s", why := lost.get(timeout=5.0))
        assert told is not None, why
        assert SHORT.dead <= float(told[1]) <= SHORT.dead + 0.5, "since its last word, which was its welcome"
        assert controller.server.sightings()[0].at > begun


def test_heartbeats_carry_what_the_training_loop_has_counted() -> None:
    with listening(SHORT, SHORT) as (controller, link, _):
        link.progress, link.activity = 7, "train"
        end = time.monotonic() + 5.0
        while controller.server.sightings()[0].progress != 7:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert controller.server.sightings()[0].activity == "train"


def test_nothing_that_an_evicted_rank_says_is_heard_and_it_is_told_to_end_itself() -> None:
    with listening(SHORT, SHORT) as (controller, link, lost):
        controller.server.evict(0)
        assert lost.get(timeout=5.0) == "the controller has declared this rank dead"
        while not lost.empty():
            lost.get()
        link.send(bye(0))
        assert "declared this rank dead" in lost.get(timeout=5.0), "each word is answered so"
        with pytest.raises(FlodlError, match="this rank was declared dead: nothing of it is stored"):
            link.upload([("weights.safetensors", (b"x" * 3_000_000,))])
        assert not controller.sink.committed
        assert controller.events.empty()
