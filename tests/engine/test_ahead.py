"""Rounds whose step is taken before their end is known: the same numbers, and nothing left of what was void."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from flodl.decide.messages import Range
from flodl.engine.averaging.before import Before
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.groups import GroupAverager
from flodl.engine.orders import RegroupedError
from flodl.ports import AbandonedError
from tests.engine import rig
from tests.engine.pair import Pair, at_once
from tests.engine.test_gradients import BATCH, OPTIMIZERS, Odd, data, grants, loss_of

MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
}


def same(one: list[dict[str, Any]], other: list[dict[str, Any]], *, but: str = "num_batches") -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert but in name or np.array_equal(value, theirs[name], equal_nan=True), name


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_step_ahead_is_the_step_itself(make: Any, clip: float | None) -> None:
    plain, ahead = Pair(make, clip=clip), Pair(make, clip=clip)
    for number in range(4):
        plain.batch(number)
        plain.average()
        ahead.batch(number)
        for rule, going in zip(ahead.rules, ahead.launch(), strict=True):
            rule.confirm(going.outcome())
    same(ahead.standing(), plain.standing(), but="nothing")
    assert all(torch.equal(a, b) for a, b in zip(ahead.rules[0].result(), plain.rules[1].result(), strict=True))


@pytest.mark.parametrize("rounds_before", [0, 2], ids=["the first step", "a later one"])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_void_round_leaves_nothing_behind(make: Any, rounds_before: int) -> None:
    pair = Pair(make)
    for number in range(rounds_before):
        pair.batch(number)
        pair.average()
    before, result = pair.standing(), [rule.result() for rule in pair.rules]
    pair.batch(7)
    going = pair.launch()
    pair.batch(8)  # begun ahead of the others' word
    pair.regroup(2)
    for rank, rule in enumerate(pair.rules):
        with pytest.raises(AbandonedError):
            going[rank].outcome()
        rule.take_back()
        rule.take_back()  # nothing is left to be taken back
    same(pair.standing(), before)
    for rule, held in zip(pair.rules, result, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(rule.result(), held, strict=True))
    other = Pair(make)
    for number in (*range(rounds_before), 9):
        other.batch(number)
        other.average()
    pair.batch(9)
    pair.average()
    same(pair.standing(), other.standing())


class Cut:
    """A torch group whose connections break when the sum is under way. seen: what the others may be reading still."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor]] = []

    def name(self) -> str:
        return "gloo"

    def allreduce(self, vectors: list[Tensor], options: Any) -> Cut:
        self.seen += [(vector, vector.clone()) for vector in vectors]
        return self

    def wait(self) -> bool:
        raise RuntimeError("connection reset")


def test_a_sum_that_fails_is_told_at_its_end_and_what_others_may_be_reading_stays_as_it_is() -> None:
    pair, group = Pair(MAKERS["momentum"]), Cut()
    before = pair.standing()
    averager = GroupAverager(0, lambda generation: dist.HashStore(), lambda store, place, members: group)
    averager.form(1, (0, 1))
    pair.batch(0)
    rule, order = pair.rules[0], pair.order()
    assert rule.can_go_ahead(order)
    rule.snapshot()
    going = rule.launch(averager, order)
    with pytest.raises(RuntimeError, match="connection reset"):
        going.outcome()
    rule.take_back()
    assert len(group.seen) == len(rule.contribution.flat.vectors)
    assert all(torch.equal(vector, handed) for vector, handed in group.seen)
    same(pair.standing()[:1], before[:1])


def test_what_goes_wrong_on_this_rank_alone_is_told_at_once_and_is_no_failed_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others have the sum: no word of the coordinator would come."""

    def fail(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    pair, store = Pair(MAKERS["momentum"]), dist.HashStore()
    group = Cut()
    averager = GroupAverager(0, lambda generation: store, lambda *given: group)
    averager.form(1, (0, 1))
    monkeypatch.setattr(group, "wait", lambda: True)
    pair.batch(0)
    rule, order = pair.rules[0], pair.order()
    assert rule.can_go_ahead(order)
    rule.snapshot()
    monkeypatch.setattr(Tensor, "div_", fail)
    with pytest.raises(torch.OutOfMemoryError):
        rule.launch(averager, order)


def test_who_lacks_a_round_takes_it_from_who_holds_it_after_its_own_try_was_void() -> None:
    pair = Pair(MAKERS["adamw"])
    pair.batch(0)
    pair.average()
    pair.batch(1)
    first, second = pair.launch()
    pair.rules[0].confirm(first.outcome())
    pair.seats[1].close()
    with pytest.raises(AbandonedError):
        second.outcome()
    pair.rules[1].take_back()
    missed = pair.rules[1].repaired(pair.rules[0].result(), RoundOrder(2, 2, 0.5))
    pair.rules[1].adopt(missed)
    one, other = pair.standing()
    same([one], [other])


def test_a_rank_that_is_not_finite_is_left_out_and_named() -> None:
    pair, alone = Pair(MAKERS["momentum"]), Pair(MAKERS["momentum"])
    pair.batch(0, poison=(1,))
    outcomes = [going.outcome() for going in pair.launch()]
    for rule, outcome in zip(pair.rules, outcomes, strict=True):
        rule.confirm(outcome)
    assert [outcome.nonfinite for outcome in outcomes] == ["", "first.weight"]
    alone.batch(0, poison=(1,))
    alone.average()
    same(pair.standing(), alone.standing())
    one, other = pair.standing()
    same([one], [other])


@pytest.mark.parametrize("begun", [False, True], ids=["confirmed at once", "a batch later"])
def test_where_nobody_is_finite_nothing_changes_and_the_next_round_is_a_round(begun: bool) -> None:
    pair, plain = Pair(MAKERS["sgd"]), Pair(MAKERS["sgd"])  # without momentum the void step moves nothing
    for one in (pair, plain):
        one.batch(0)
        one.average()
        one.batch(1, poison=(0, 1))
    plain.average()
    before, going = pair.standing(), pair.launch()
    if begun:
        pair.batch(2)
    for rule, its in zip(pair.rules, going, strict=True):
        outcome = its.outcome()
        assert not outcome.moved
        rule.confirm(outcome)
    same(pair.standing(), before, but="norm.")
    if not begun:
        pair.batch(2)
    plain.batch(2)
    for rule, its in zip(pair.rules, pair.launch(), strict=True):
        rule.confirm(its.outcome())
    plain.average()
    same(pair.standing(), plain.standing())


@pytest.mark.parametrize("poison", [(), (0,), (1,), (0, 1)])
def test_a_rank_that_goes_ahead_and_one_that_waits_hold_the_same(poison: tuple[int, ...]) -> None:
    pair = Pair(MAKERS["adamw"], clip=0.05)
    ahead, waits = pair.rules
    for number in range(4):
        pair.batch(number, poison if number == 2 else ())
        order = pair.order()
        assert ahead.can_go_ahead(order)
        ahead.snapshot()
        waits.snapshot()
        going, outcome = at_once(lambda rank, order=order: (ahead.launch, waits.average)[rank](pair.seats[rank], order))
        ahead.confirm(going.outcome())
        waits.adopt(outcome)
        one, other = pair.standing()
        same([one], [other])


def test_an_optimizer_of_ones_own_is_not_run_ahead_of() -> None:
    class Own(torch.optim.SGD):
        """It may keep what nobody sees."""

    parameters = [nn.Parameter(torch.zeros(2))]
    assert Before(torch.optim.SGD(parameters)).prepare()
    assert not Before(Own(parameters)).prepare()


@pytest.mark.ring3
@pytest.mark.parametrize("optim", list(OPTIMIZERS))
@pytest.mark.parametrize("quotas", [(1, 1), (1, 3)])
def test_grants_end_with_the_same_weights_either_way(optim: str, quotas: tuple[int, int], tmp_path: Path) -> None:
    def trained(name: str, ahead: bool) -> Any:
        def work(rank: int) -> Any:
            script = [rig.form(range(2)), *grants(quotas, rank, 20), rig.finish()]
            model = Odd(rank, torch.float32)
            loop = rig.make_loop(
                rank,
                rig.ScriptedLink(script, tmp_path / name),
                rule="gradients",
                model=model,
                optimizer=OPTIMIZERS[optim]([p for p in model.parameters() if p.requires_grad]),
                step=loss_of,
                data=data(sum(quotas) * BATCH * 20, torch.float32),
                batch_size=BATCH,
                max_grad_norm=0.1,
            )
            rule: Any = loop.parts.rounds.rule
            rule.goes_ahead = ahead
            loop.run()
            assert (rule._spare is not None) == ahead
            assert loop.parts.rounds.last_round == 20
            return rig.values(model)

        return rig.run_ranks(2, work)

    plain, ahead = trained("plain", False), trained("ahead", True)
    same(ahead, plain)


def rank_of_two(folder: Path, step: Any = loss_of) -> tuple[Any, rig.ScriptedLink]:
    """A loop that has launched a round; nobody has yet said what came of it."""
    link = rig.ScriptedLink([], folder / "store")
    model = Odd(0, torch.float32)
    optimizer = OPTIMIZERS["sgd"]([p for p in model.parameters() if p.requires_grad])
    loop: Any = rig.make_loop(0, link, rule="gradients", model=model, optimizer=optimizer, step=step,
                              data=data(64, torch.float32), batch_size=BATCH)  # fmt: skip
    loop.launched = Future()
    loop.launched.add_done_callback(loop._is_over)
    loop.parts.feed.restate([Range(0, 0, 64)])
    return loop, link


def test_who_waits_for_a_launched_round_in_a_full_queue_does_not_hang_itself(tmp_path: Path) -> None:
    loop, link = rank_of_two(tmp_path)
    loop.say_train()
    assert link.activity == "average"  # what it hangs in may be the others' part
    loop.launched.set_result(None)
    assert link.activity == "train"  # from here on it is its own
    loop.say_train()
    assert link.activity == "train"


def test_what_a_batch_raises_on_weights_of_a_void_round_is_void_too(tmp_path: Path) -> None:
    def raising(model: nn.Module, batch: Any) -> Tensor:
        raise ValueError("the loss is not finite")

    loop, link = rank_of_two(tmp_path, raising)
    loop.begun_epoch = 0
    loop.launched.set_exception(AbandonedError("generation 1 has passed"))
    link._script.append(rig.form([0], generation=2))
    with pytest.raises(RegroupedError):
        loop.train_ahead()
    loop.launched = None
    with pytest.raises(ValueError, match="not finite"):
        loop.train_ahead()


def test_a_users_epoch_function_meets_weights_that_stand(tmp_path: Path) -> None:
    loop, link = rank_of_two(tmp_path)
    loop.launched.set_exception(AbandonedError("generation 1 has passed"))
    link._script.append(rig.form([0], generation=2))
    with pytest.raises(RegroupedError):
        loop.train_ahead()
    assert loop.begun_epoch == -1
