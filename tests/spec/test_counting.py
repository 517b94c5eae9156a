"""Numbers have their nouns in the number that they say."""

from __future__ import annotations

import pytest

from flodl.spec.counting import all_are, counted


@pytest.mark.parametrize(("number", "said"), [(0, "0 epochs"), (1, "1 epoch"), (2, "2 epochs")])
def test_one_is_singular(number: int, said: str) -> None:
    assert counted(number, "epoch") == said


def test_a_plural_of_its_own_is_given() -> None:
    assert [counted(n, "batch", "batches") for n in (1, 2)] == ["1 batch", "2 batches"]


def test_of_one_it_is_not_said_that_all_are() -> None:
    assert all_are(1, "rank", "ready for the loop") == "the one rank is ready for the loop"
    assert all_are(2, "epoch", "done") == "all 2 epochs are done"
