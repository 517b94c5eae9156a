"""Config tree, spec.json and wire give the same job back, and nothing odd gets past the door.

(``ConfigError`` is the only answer to data from outside, whatever it is.)
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl.errors import ConfigError
from flodl.spec.codec import canonical_json, decode_document, decode_job, job_to_plain, sha256, spec_document
from flodl.spec.job import JobSpec
from tests.conf.samples import SAMPLES
from tests.spec.trees import tree

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FINITE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=8).filter(lambda name: not name.startswith("_")), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def changed(keys: list[str], args: dict[str, Any]) -> dict[str, Any]:
    """A tree in which these keys have their sample's value and the model has these arguments."""
    made = job_to_plain(decode_job(tree()))
    for key in keys:
        guard = {"guard.threshold": "trend"}.get(key, "msf" if key.startswith("guard.") else None)
        if guard and made["guard"]["name"] != guard:
            made["guard"] = {"name": guard}
        *path, last = key.split(".")
        node: Any = made
        for part in path:
            node = node[int(part)] if isinstance(node, list) else node[part]
        node[last] = SAMPLES[key].value
    made["cluster"]["workers"][0].setdefault("host", "localhost")
    if isinstance(made["cluster"]["workers"][0]["speed"], list):
        made["cluster"]["workers"][0]["local_devices"] = "cpu:2"
    if isinstance(made["model"], dict):
        made["model"] |= args
    return made


JOBS = st.builds(
    changed,
    st.lists(st.sampled_from(sorted(SAMPLES)), max_size=12, unique=True),
    st.dictionaries(st.text(max_size=8).filter(lambda name: not name.startswith("_")), FINITE, max_size=3),
)


def decoded(made: dict[str, Any]) -> JobSpec | None:
    try:
        return decode_job(made)
    except ConfigError as error:  # for one, samples that contradict each other in this mixture
        if not all(problem.key and problem.constraint for problem in error.problems):
            raise
        return None


@settings(max_examples=200, deadline=None)
@given(JOBS)
def test_every_form_of_a_job_gives_the_same_job_back(made: dict[str, Any]) -> None:
    job = decoded(made)
    if job is None:
        return
    assert decode_job(job_to_plain(job)) == job
    assert decode_job(msgspec.json.decode(canonical_json(job))) == job
    assert decode_document(json.dumps(spec_document(job)).encode(), "spec.json") == job
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=JobSpec) == job
    again = decode_job(msgspec.json.decode(canonical_json(job)))
    assert canonical_json(again) == canonical_json(job)
    assert sha256(again) == sha256(job)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), JSON)
def test_odd_data_at_a_key_is_taken_or_refused_in_words(key: str, odd: Any) -> None:
    made = job_to_plain(decode_job(tree(guard={"name": "msf" if key.startswith("guard.") else "trend"})))
    *path, last = key.split(".")
    node: Any = made
    for part in path:
        node = node[int(part)] if isinstance(node, list) else node[part]
    node[last] = odd
    job = decoded(made)  # refused: ConfigError, and nothing else
    assert job is None or decode_job(msgspec.json.decode(canonical_json(job))) == job


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(JobSpec.__struct_fields__)) | st.text(max_size=5), JSON, max_size=8))
def test_odd_trees_are_refused_in_words(odd: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        decode_job(odd)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_odd_bytes_are_refused_in_words(odd: bytes) -> None:
    with pytest.raises(ConfigError):
        decode_document(odd, "spec.json")
