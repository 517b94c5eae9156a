"""Rounds that are queued behind the batches on a real card: the same numbers as rounds that are waited for.

In processes of their own: one that has used a card can fork no rank that uses it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.layout import model_layout
from flodl.engine.averaging.rule import RoundOrder
from flodl.engine.averaging.under_way import largest
from flodl.probe.gpus import count_gpus
from tests.engine import rig
from tests.engine.pair import Normed, at_once
from tests.engine.test_ahead import MAKERS

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")


@contextmanager
def nothing_waits() -> Iterator[None]:
    """An operation in here that waits for the card raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def trained(optim: str, *, ahead: bool, poison: int | None = None) -> tuple[list[Any], list[str]]:
    """What two ranks that share the card hold after five rounds, and who was not finite in the fourth."""
    card, board = torch.device("cuda:0"), Board(20.0)
    models = [Normed().to(card), Normed().to(card)]
    rules = [GradientRule(m, MAKERS[optim](m.parameters()), device=card, flat_device=card) for m in models]
    seats = [InProcessAverager(board, rank) for rank in (0, 1)]
    at_once(lambda rank: seats[rank].form(1, (0, 1)))
    for rank, rule in enumerate(rules):
        assert rule.goes_ahead
        rule.regroup(2, rank)
        rule.start()
    said: list[str] = []
    for number in range(1, 6):
        for rank, (model, rule) in enumerate(zip(models, rules, strict=True)):
            inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * number + rank)).to(card)
            loss = model(inputs).square().mean() * (float("nan") if (number, rank) == (4, poison) else 1.0)
            loss.backward()
            rule.step(5)
            rule.snapshot()
        order = RoundOrder(1, number, 0.5)
        if ahead:
            assert all(rule.can_go_ahead(order) for rule in rules)
            with nothing_waits():
                going = at_once(lambda rank, order=order: rules[rank].launch(seats[rank], order))
            outcomes = [one.outcome() for one in going]
            for rule, outcome in zip(rules, outcomes, strict=True):
                rule.confirm(outcome)
        else:
            outcomes = at_once(lambda rank, order=order: rules[rank].average(seats[rank], order))
            for rule, outcome in zip(rules, outcomes, strict=True):
                rule.adopt(outcome)
        if number == 4:
            said = [outcome.nonfinite for outcome in outcomes]
    return [value for model in models for value in rig.values(model).values()], said


def apart(work: Callable[[], Any]) -> Any:
    """What `work` gives in a process of its own."""
    return rig.run_ranks(1, lambda rank: work(), timeout=60.0)[0]


@pytest.mark.parametrize("poison", [None, 1])
@pytest.mark.parametrize("optim", list(MAKERS))
def test_a_step_ahead_is_the_step_itself_and_says_who_is_not_finite(optim: str, poison: int | None) -> None:
    plain, ahead = (apart(lambda way=way: trained(optim, ahead=way, poison=poison)) for way in (False, True))
    assert all(np.array_equal(one, other) for one, other in zip(plain[0], ahead[0], strict=True))
    assert plain[1] == ahead[1] == (["", ""] if poison is None else ["", "first.weight"])


def found_places() -> list[tuple[int, list[int]]]:
    """Per slot that was ruined: those that are told."""
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(100))).cuda()
    told: list[tuple[int, list[int]]] = []
    for place in (0, 77, 199):
        for value in (float("nan"), float("inf"), float("-inf")):
            flat = Flat(model_layout(model), device=torch.device("cuda:0"))
            flat.read()
            flat.parameter_views[place].view(-1)[-1] = value
            finite = torch.isfinite(largest(flat)).tolist()
            told.append((place, [n for n, is_finite in enumerate(finite) if not is_finite]))
    return told


def test_what_is_not_finite_is_found_in_any_slot() -> None:
    for place, told in apart(found_places):
        assert told == [place]
