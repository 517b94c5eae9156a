"""Every key can be overridden with a legal value, and refuses an illegal one in words.

All keys of one composition are overridden together: a problem belongs to its key, and none hides another.
"""

from __future__ import annotations

from functools import cache
from itertools import zip_longest
from typing import Any

import pytest

from flodl.errors import ConfigError, Problem
from flodl.spec.codec import decode_job, job_to_plain
from flodl.spec.job import JobSpec
from flodl.spec.keys import job_keys
from tests.conf.composing import job
from tests.conf.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("composing")

MSF = ("guard.nudge", "guard.suppress", "guard.ema")
SETTINGS = {"guard.name": "guard=none"} | {key: "guard=msf" for key in SAMPLES if key.startswith(MSF)}
SETTINGS |= {key: "outer=diloco" for key in SAMPLES if key.startswith("outer.")} | {"outer.name": "guard=none"}
CHOSEN = ("guard.name", "outer.name")  # by a setting
COMPONENTS = {"model", "dataset", "step", "optim", "scheduler"}
GROUPS = {*COMPONENTS, "logger"}  # an override of these names a choice
ILLEGAL = [(key, text) for key, sample in SAMPLES.items() for text in sample.illegal]
TURNS = list(zip_longest(*(sample.illegal for sample in SAMPLES.values())))  # n-th turn: n-th illegal value of each key


def override(key: str, text: str) -> str:
    """++ for maps: Hydra adds new names to a map only so."""
    return f"++{key}={text}" if key.endswith(".env") else f"{key}={text}"


def setting(key: str) -> str:
    """The choice that a key belongs to; all others go together."""
    return SETTINGS.get(key, "guard=trend")


@cache
def changed(choice: str) -> JobSpec:
    keys = [key for key in SAMPLES if setting(key) == choice and key not in (*CHOSEN, *GROUPS)]
    return job([choice, *(override(key, SAMPLES[key].legal) for key in keys)])


@cache
def refused(choice: str, turn: int) -> tuple[Problem, ...]:
    pairs = zip(SAMPLES, TURNS[turn], strict=True)
    chosen = [(k, t) for k, t in pairs if t is not None and setting(k) == choice and k not in GROUPS]
    with pytest.raises(ConfigError) as caught:
        job([choice, *(override(key, text) for key, text in chosen)])
    return caught.value.problems


def at(plain: dict[str, Any], key: str) -> Any:
    node: Any = plain
    for part in key.split("."):
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node


def test_every_key_has_samples() -> None:
    assert sorted(SAMPLES) == sorted(job_keys())
    assert all(sample.illegal for sample in SAMPLES.values())


@pytest.mark.parametrize("key", [k for k in SAMPLES if k not in (*GROUPS, *CHOSEN)])
def test_a_legal_value_arrives(key: str) -> None:
    assert at(job_to_plain(changed(setting(key))), key) == SAMPLES[key].value


@pytest.mark.parametrize("key", [k for k in SAMPLES if k not in (*GROUPS, *CHOSEN)])
def test_the_legal_samples_are_no_defaults(key: str) -> None:
    assert at(job_to_plain(job_with(setting(key))), key) != SAMPLES[key].value


@cache
def job_with(choice: str) -> JobSpec:
    return job([choice])


@pytest.mark.parametrize(("key", "text"), [(k, t) for k, t in ILLEGAL if k not in GROUPS])
def test_an_illegal_value_is_refused_in_words(key: str, text: str) -> None:
    turn = next(i for i, sample in enumerate(TURNS) if dict(zip(SAMPLES, sample, strict=True))[key] == text)
    problems = refused(setting(key), turn)
    own = [problem for problem in problems if spelt(problem.key).startswith(key)]
    assert own, f"{key}={text} was accepted; refused were {[p.key for p in problems]}"
    for problem in own:
        assert problem.constraint
        assert "`" not in problem.constraint, "msgspec's own words"
        assert "Expected" not in problem.constraint


def spelt(key: str) -> str:
    return key.replace("[", ".").replace("]", "")


def test_the_guard_can_be_changed_by_its_name_alone() -> None:
    plain = job_to_plain(job(["guard=none", "guard.name=trend"]))
    assert plain["guard"] == {"name": "trend", "threshold": None}


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_a_component_is_read_from_its_hydra_form(name: str) -> None:
    tree = job_to_plain(job())
    wanted: Any = SAMPLES[name].value
    read = getattr(decode_job(tree | {name: wanted}), name)
    assert read.target == wanted.pop("_target_")
    assert read.partial is wanted.pop("_partial_", False)
    assert read.args == wanted
    for text in ("nonsense", ["a"], {}, {"_target_": "nodots"}, {"_target_": 5}, {"_target_": "a.b", "_args_": [1]}):
        with pytest.raises(ConfigError, match=name):
            decode_job(tree | {name: text})


def test_loggers_are_read_by_their_names_and_written_again() -> None:
    tree = job_to_plain(job())
    wanted: Any = SAMPLES["logger"].value
    read = decode_job(tree | {"logger": wanted})
    assert {name: logger.target for name, logger in read.logger.items()} == {"größe/a b": "mine.Logger"}
    assert job_to_plain(read)["logger"] == wanted
    for text in ("nonsense", ["a"], {"a": {}}, {"a": {"_target_": "nodots"}}, {"a": 5}):
        with pytest.raises(ConfigError, match="logger"):
            decode_job(tree | {"logger": text})
