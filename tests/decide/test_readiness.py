"""What all ranks must agree on before the first window."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.decide.messages import RankReady
from flodl.decide.readiness import readiness_problems
from tests.scenarios.rigs import places_of

PLACES = places_of([8, 8])


def ready(rank: int, **changes: Any) -> RankReady:
    facts: dict[str, Any] = {
        "num_samples": 100,
        "data_signature": "d",
        "fingerprint": "f",
        "num_parameters": 3,
        "batch_size": 8,
    } | changes
    return RankReady(at=0.0, rank=rank, host="here", device="cpu", **facts)


def told(*readies: RankReady, batch_size: int = 8) -> str:
    found = readiness_problems({one.rank: one for one in readies}, PLACES, batch_size)
    return "\n".join(str(problem) for problem in found)


def test_equal_ranks_are_ready() -> None:
    assert told(ready(0), ready(1)) == ""


def test_a_rank_that_is_not_there_is_not_asked() -> None:
    assert told(ready(1)) == ""


def test_an_empty_data_set_is_refused() -> None:
    assert told(ready(0, num_samples=0), ready(1, num_samples=0)) == "dataset: the data set is empty"


def test_fewer_samples_than_one_batch_are_refused() -> None:
    text = told(ready(0, num_samples=7), ready(1, num_samples=7))
    assert text == ("trainer.batch_size=8: the data set has 7 samples: fewer than one batch; lower trainer.batch_size")


def test_a_model_without_parameters_is_refused() -> None:
    assert "nothing to train" in told(ready(0, num_parameters=0), ready(1, num_parameters=0))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"data_signature": "other"}, "the data differ"),
        ({"num_samples": 99}, "the number of samples differs"),
        ({"num_parameters": 4}, "the models differ"),
        ({"fingerprint": "other"}, "the models' tensors differ"),
    ],
)
def test_the_first_key_that_differs_is_named_with_host_and_rank(change: dict[str, Any], what: str) -> None:
    text = told(ready(0), ready(1, **change))
    assert what in text
    assert "here (rank 1)" in text
    assert text.count("\n") == 0


def test_a_batch_size_that_differs_from_the_roster_is_refused() -> None:
    assert "rank 1 was told to use 8" in told(ready(0), ready(1, batch_size=16))
