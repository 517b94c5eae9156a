"""What all ranks must agree on before the first window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.messages import RankReady
from flodl.decide.readiness import readiness_problems
from flodl.decide.roster import Place
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


@pytest.mark.row(25)
def test_an_empty_data_set_is_refused() -> None:
    assert told(ready(0, num_samples=0), ready(1, num_samples=0)) == "dataset: the data set is empty"


@pytest.mark.row(25)
def test_fewer_samples_than_one_batch_are_refused() -> None:
    text = told(ready(0, num_samples=7), ready(1, num_samples=7))
    assert text == ("trainer.batch_size=8: the data set has 7 samples: fewer than one batch; lower trainer.batch_size")


def test_a_model_without_parameters_is_refused() -> None:
    assert "nothing to train" in told(ready(0, num_parameters=0), ready(1, num_parameters=0))


@pytest.mark.row(25)
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


REMEDY = "run with cluster.deploy.code=rsync, or copy the project to every host"


def on_hosts(*projects: tuple[str, dict[str, str]], **changes: Any) -> str:
    """What is told about ranks of these hosts with these project files. changes: of the last rank."""
    places = [Place(rank=n, host=host, device="cpu", batch_size=8) for n, (host, _) in enumerate(projects)]
    readies = {n: ready(n, project=files) for n, (_, files) in enumerate(projects)}
    readies[len(projects) - 1] = ready(len(projects) - 1, project=projects[-1][1], **changes)
    return "\n".join(map(str, readiness_problems(readies, places, 8)))


def test_a_stale_file_is_named_with_its_host_and_the_remedy() -> None:
    said = on_hosts(("a", {"mine.py": "1", "nets.py": "1"}), ("b", {"mine.py": "2", "nets.py": "1"}))
    assert said == f"b: mine.py of the project is not what a has; {REMEDY}"


def test_what_most_hosts_have_is_right_also_where_rank_0_is_stale() -> None:
    new, old = {"mine.py": "1"}, {"mine.py": "0"}
    assert on_hosts(("a", old), ("b", new), ("c", new)) == f"a: mine.py of the project is not what b has; {REMEDY}"


def test_hosts_are_counted_and_not_their_ranks() -> None:
    new, old = {"mine.py": "1"}, {"mine.py": "0"}
    said = on_hosts(("a", old), ("a", old), ("a", old), ("b", new), ("c", new))
    assert said == f"a: mine.py of the project is not what b has; {REMEDY}"


def test_what_follows_from_a_stale_file_is_not_told_beside_it() -> None:
    changes = {"num_parameters": 5, "fingerprint": "other"}
    said = on_hosts(("a", {"mine.py": "1"}), ("b", {"mine.py": "2"}), **changes)
    assert said == f"b: mine.py of the project is not what a has; {REMEDY}"
    assert "the models differ" in on_hosts(("a", {"mine.py": "1"}), ("b", {"mine.py": "1"}), **changes)


def test_files_that_only_one_host_needed_do_not_count() -> None:
    assert on_hosts(("a", {"mine.py": "1", "gpu.py": "7"}), ("b", {"mine.py": "1"}), ("c", {})) == ""


def test_many_stale_files_are_counted() -> None:
    files = [f"f{n}.py" for n in range(5)]
    said = on_hosts(("a", dict.fromkeys(files, "1")), ("b", dict.fromkeys(files, "2")))
    assert said.startswith("b: f0.py, f1.py, f2.py and 2 more files of the project are not what a has; ")


def test_a_file_that_was_saved_while_the_ranks_of_a_host_started_is_told_so() -> None:
    said = on_hosts(("a", {"mine.py": "1"}), ("a", {"mine.py": "2"}))
    assert said == f"a: mine.py of the project changed while its ranks were starting; {REMEDY}"


def test_a_replacement_with_other_code_is_told_that_it_changed_since_the_run_began() -> None:
    readies = {0: ready(0, project={"mine.py": "1"}), 1: ready(1, project={"mine.py": "2"})}
    (problem,) = readiness_problems(readies, PLACES, 8, newcomer=1)
    assert problem.constraint == "mine.py of the project changed since the run began"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from("12"))),
                min_size=1, max_size=8))  # fmt: skip
def test_there_is_something_to_tell_exactly_where_a_file_differs(ranks: list[tuple[str, dict[str, str]]]) -> None:
    versions: dict[str, set[str]] = {}
    for _, files in ranks:
        for name, digest in files.items():
            versions.setdefault(name, set()).add(digest)
    assert (on_hosts(*ranks) != "") == any(len(digests) > 1 for digests in versions.values())
