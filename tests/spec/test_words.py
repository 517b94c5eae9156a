"""Types in words, and the nearest right name."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from flodl.spec.component import Component
from flodl.spec.describe import choices_of, words
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import CheckpointConfig, JobSpec, MembershipConfig
from flodl.spec.keys import is_component_key, job_keys
from flodl.spec.reader import hints, shown
from flodl.spec.suggest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (hints(ElCheConfig)["anchor"], "a whole number >= 1, or auto"),
        (hints(ElCheConfig)["overhead_target"], "a number >= 0.01 and <= 0.5"),
        (hints(ElCheConfig)["easgd_beta"], "a number > 0 and <= 1, p, or null"),
        (hints(ElCheConfig)["partition_ratios"], "a list of numbers >= 0, or null"),
        (hints(ElCheConfig)["relax_up"], "true or false"),
        (hints(MembershipConfig)["max_failure"], "a whole number >= 1, a percentage such as 25%, or null"),
        (hints(CheckpointConfig)["stem"], "a file name of letters, digits, dots and dashes"),
        (Literal["a", "b"] | None, "a, b, or null"),
        (dict[str, str], "a map of names to text"),
        (tuple[str, ...], "a list of texts"),
        (Any, "plain data"),
    ],
)
def test_a_type_in_words(hint: Any, text: str) -> None:
    assert words(hint) == text


def test_the_choices_of_a_type() -> None:
    assert choices_of(Literal["a", "b"] | int) == ("a", "b")
    assert choices_of(int) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("", "''"),
        (0.5, "0.5"),
        ([1, None, True], "[1, null, true]"),
        ("x" * 99, "x" * 57 + "..."),
    ],
)
def test_a_value_is_shown_as_people_write_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_the_nearest_name_ignores_case() -> None:
    assert nearest("CPU_ASINC", ["cpu_async", "cpu_sync"]) == "cpu_async"
    assert nearest("zzz", ["cpu_async"]) is None
    assert did_you_mean("cpu_asinc", ["cpu_async", "cpu_sync"]) == "did you mean cpu_async?"
    assert did_you_mean("zzz", ["b", "a"]) == "known here: a, b"
    assert did_you_mean("zzz", []) == ""


def test_every_key_of_a_job_is_listed_once() -> None:
    keys = job_keys()
    assert keys["model"] is Component
    assert "cluster.workers.0.ssh.port" in keys
    assert "guard.name" in keys
    assert set(JobSpec.__struct_fields__) == {key.partition(".")[0] for key in keys}
    assert is_component_key("optim.lr")
    assert not is_component_key("trainer.seed")
    assert not is_component_key("optim")
