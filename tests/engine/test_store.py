"""The run's Store as torch sees it, from real rank processes: no TCPStore, no port of its own."""

from __future__ import annotations

from flodl.decide.messages import Finish, FormGroup, Goodbye, GroupFormed, RankReady
from tests.engine.live import live


def test_the_store_answers_as_torch_expects_it_also_to_several_threads() -> None:
    with live(2, "questions") as run:
        run.until(RankReady, 2)
        run.world.execute(Finish(to=(0, 1), reason="done"))
        run.until(Goodbye, 2)
        run.ended()
    assert not [text for _, text in run.lines if "Error" in text]


def test_four_ranks_form_a_gloo_group_over_it_generation_after_generation() -> None:
    with live(4) as run:
        run.until(RankReady, 4)
        for generation in (1, 2, 3):
            ranks = (0, 1, 2, 3) if generation < 3 else (0, 2, 3)
            run.world.execute(FormGroup(to=ranks, generation=generation, ranks=ranks, reason="a test"))
            formed = run.until(GroupFormed, len(ranks), seconds=20.0)
            total = sum(rank + 1 for rank in ranks)
            assert {event.digest.split()[0] for event in formed} == {str(total)}
            assert {event.generation for event in formed} == {generation}
        took = [float(event.digest.split()[1]) for event in formed]
    assert max(took) < 2000  # ms; about 15 on an idle machine


def test_a_new_generation_sends_home_who_waits_in_the_old_one() -> None:
    with live(1, "waits_for_nobody") as run:
        run.until(RankReady)
        run.world.execute(FormGroup(to=(), generation=1, ranks=(0,), reason="a test"))
        run.world.execute(FormGroup(to=(), generation=2, ranks=(0,), reason="a test"))
        run.until(Goodbye, seconds=5.0)
        run.ended()
    assert (0, "store get: superseded: g1/never") in run.lines
