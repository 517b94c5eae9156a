"""ElChe's knobs: what `auto` means in each mode, and which knobs contradict each other."""

from __future__ import annotations

from typing import Any

import pytest

from flodl.errors import ConfigError
from flodl.spec.codec import decode_job
from flodl.spec.elche import MODES, ElCheConfig
from tests.spec.trees import tree


def said(**elche: Any) -> list[str]:
    try:
        decode_job(tree(elche=elche))
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_what_auto_means_in_each_mode() -> None:
    told = {
        mode: (c.initial_anchor, c.averages, c.splits, c.backend)
        for mode in MODES
        for c in [ElCheConfig(mode=mode)]
    }  # fmt: skip
    assert told == {
        "nccl_sync": (1, "gradients", "equal", "nccl"),
        "nccl_cadence": (10, "parameters", "proportional", "nccl"),
        "cpu_sync": (1, "gradients", "equal", "gloo"),
        "cpu_cadence": (10, "parameters", "proportional", "gloo"),
        "cpu_async": (10, "parameters", "proportional", "gloo"),
    }


def test_an_explicit_choice_wins_over_auto() -> None:
    config = ElCheConfig(mode="cpu_sync", average="parameters", split="proportional", anchor=5)
    assert (config.averages, config.splits, config.initial_anchor) == ("parameters", "proportional", 1)
    assert ElCheConfig(anchor=5).initial_anchor == 5
    assert ElCheConfig(min_anchor=3, max_anchor=4).anchor_bounds == (3, 4)
    assert ElCheConfig().anchor_bounds == (1, 1000)


def test_auto_is_resolved_once() -> None:
    assert ElCheConfig().resolved("cpu_cadence").mode == "cpu_cadence"
    assert ElCheConfig(mode="cpu_async").resolved("cpu_cadence").mode == "cpu_async"
    assert ElCheConfig(mode="cpu_async").is_async


def test_the_centers_pull() -> None:
    assert ElCheConfig(easgd_alpha=0.4).beta(3) == 0.4
    assert ElCheConfig(easgd_alpha=0.4, easgd_beta=0.1).beta(3) == 0.1
    assert ElCheConfig(easgd_alpha=0.4, easgd_beta="p").beta(2) == 0.8
    assert ElCheConfig(easgd_alpha=0.4, easgd_beta="p").beta(3) == 1.0
    assert ElCheConfig().beta(2) == 1.0


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"min_anchor": 20, "max_anchor": 5}, "elche.min_anchor=20: must not exceed elche.max_anchor=5"),
        ({"anchor": 20, "max_anchor": 15}, "elche.anchor=20: must lie within min_anchor=1 and max_anchor=15"),
        ({"min_anchor": 11}, "elche.anchor=10: must lie within min_anchor=11"),
        ({"mode": "cpu_async", "average": "gradients"}, "use average=parameters, or mode cpu_cadence"),
        ({"average": "gradients", "easgd_alpha": 0.5}, "elastic averaging blends parameters, not gradients"),
    ],
)
def test_knobs_that_contradict_each_other(knobs: dict[str, Any], words: str) -> None:
    (problem,) = said(**knobs)
    assert words in problem


@pytest.mark.parametrize(
    "knobs",
    [{"mode": "cpu_sync", "min_anchor": 5}, {"mode": "cpu_sync", "easgd_alpha": 0.5}, {"anchor": 10, "max_anchor": 10}],
)
def test_knobs_that_do_not(knobs: dict[str, Any]) -> None:
    assert said(**knobs) == []
