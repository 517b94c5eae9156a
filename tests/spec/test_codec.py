"""The strict door: every problem at once, each with its key, its value, what may stand there, and what to do."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from flodl.errors import ConfigError, Problem
from flodl.spec.codec import (
    SCHEMA,
    canonical_json,
    decode_document,
    decode_job,
    job_to_plain,
    load_spec,
    sha256,
    spec_document,
)
from flodl.spec.guard import MsfGuardConfig
from tests.spec.trees import tree


def refused(parts: dict[str, Any]) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        decode_job(tree(**parts))
    return list(caught.value.problems)


def only(parts: dict[str, Any]) -> str:
    (problem,) = refused(parts)
    return str(problem)


def test_a_bare_tree_becomes_a_job_with_every_default() -> None:
    job = decode_job(tree())
    assert job.trainer.batch_size == 64
    assert job.elche.mode == "auto"
    assert job.optim.partial
    assert job.optim.args == {"lr": 0.1}


def test_an_unknown_key_asks_for_the_near_one() -> None:
    assert only({"trainer": {"batchsize": 3}}) == "trainer.batchsize: there is no such key; did you mean batch_size?"


def test_an_unknown_key_without_a_near_one_lists_what_there_is() -> None:
    assert only({"meta": {"zzz": 3}}) == "meta.zzz: there is no such key; known here: enabled"


def test_a_habit_is_answered() -> None:
    assert "optim.lr" in only({"trainer": {"lr": 3}})


def test_a_missing_key_is_named() -> None:
    found = tree()
    del found["model"], found["elche"]
    with pytest.raises(ConfigError) as caught:
        decode_job(found)
    assert [str(p) for p in caught.value.problems] == ["elche: is missing", "model: is missing"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_must_be_finite(value: float) -> None:
    assert "elche.gamma" in only({"elche": {"gamma": value}})
    assert "must be a finite number" in only({"model": {"_target_": "a.b", "deep": [{"x": value}]}})
    assert "and finite" in only({"sim": {"ms_per_batch": [1.0, value]}})


def test_what_no_file_can_hold_is_refused() -> None:
    assert only({"trainer": {"num_epochs": 2**63}}).endswith("is too large: whole numbers stay below 2**63")
    assert "model.deep[0].x=" in only({"model": {"_target_": "a.b", "deep": [{"x": -(2**70)}]}})
    assert "is not text" in only({"name": "a\udcffb"})
    assert "is not text" in only({"model": {"_target_": "a.b", "x": "\udcff"}})
    assert "the key must be text" in only({"model": {"_target_": "a.b", "x": {"\udcff": 1}}})


def test_a_wrong_choice_asks_for_the_near_one() -> None:
    said = only({"elche": {"bn_buffers": "poled"}})
    assert said == "elche.bn_buffers=poled: must be local, mean, or pooled; did you mean pooled?"


def test_a_number_where_text_belongs_wants_quotes() -> None:
    assert only({"name": 7}) == "name=7: must be text; put it in quotes"


def test_a_switch_takes_no_number() -> None:
    assert only({"meta": {"enabled": 1}}) == "meta.enabled=1: must be true or false"


def test_a_whole_number_takes_no_fraction_and_no_switch() -> None:
    assert [p.value for p in refused({"trainer": {"num_epochs": 3.0, "batch_size": True}})] == ["3.0", "true"]


def test_a_number_takes_a_whole_one() -> None:
    assert decode_job(tree(elche={"gamma": 1})).elche.gamma == 1.0


def test_a_guard_is_chosen_by_its_name() -> None:
    assert decode_job(tree(guard={"name": "msf"})).guard == MsfGuardConfig()
    assert only({"guard": {"name": "trent"}}).endswith("must be one of none, trend, msf; did you mean trend?")
    assert only({"guard": {}}) == "guard.name: must be one of none, trend, msf"
    assert only({"guard": "msf"}) == "guard=msf: must be a block of keys"


def test_the_right_shape_is_asked_for() -> None:
    assert only({"trainer": 5}).startswith("trainer=5: must be a block of keys; known here: num_epochs, batch_size")
    assert only({"cluster": {"workers": "localhost"}}) == "cluster.workers=localhost: must be a list"
    assert only({"cluster": {"workers": ["localhost"]}}).startswith("cluster.workers[0]=localhost: must be a block")
    assert only({"model": "MLP"}) == "model=MLP: must be a block with _target_ and arguments"


def test_a_long_value_is_cut() -> None:
    assert len(refused({"elche": {"mode": "x" * 500}})[0].value) == 60


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ({}, "model._target_: must be the import path of a class or function; for example torch.optim.SGD"),
        ({"_target_": "Linear"}, "model._target_=Linear: must be the import path"),
        ({"_target_": "a.b", "_partial_": "yes"}, "model._partial_=yes: must be true or false"),
        ({"_target_": "a.b", "_args_": []}, "model._args_: is not accepted here; name the arguments"),
        ({"_target_": "a.b", "_convert_": "all"}, "model._convert_: is not accepted here; leave it out"),
        ({"_target_": "a.b", "_targt_": 1}, "did you mean _target_?"),
        ({"_target_": "a.b", "x": {1: 2}}, "model.x.1: the key must be text"),
        ({"_target_": "a.b", "x": [b"raw"]}, "model.x[0]=b'raw': bytes is not plain data"),
    ],
)
def test_a_component_is_plain_and_named(component: dict[str, Any], words: str) -> None:
    assert words in only({"model": component})


def test_a_tuple_in_a_component_equals_what_json_gives_back() -> None:
    job = decode_job(tree(model={"_target_": "a.b", "shape": (1, 8, 8)}))
    assert job.model.args == {"shape": [1, 8, 8]}


def test_a_contradiction_is_not_told_about_a_key_that_could_not_be_read() -> None:
    found = refused({"elche": {"min_anchor": 20, "max_anchor": "lots"}})
    assert [p.key for p in found] == ["elche.max_anchor", "elche.anchor"]


def test_neighbours_of_an_unreadable_key_are_still_judged() -> None:
    cluster = {"workers": [{"host": 5, "local_devices": "gpu"}, {"local_devices": "cpu:0"}]}
    keys = [p.key for p in refused({"cluster": cluster, "step": {}, "guard": {"name": "x"}})]
    assert keys == [
        "guard.name",
        "cluster.workers[0].host",
        "cluster.workers[0].local_devices",
        "cluster.workers[1].host",
        "cluster.workers[1].local_devices",
        "cluster.workers[0].nccl_socket_ifname",
        "cluster.workers[1].nccl_socket_ifname",
        "step._target_",
    ]


def test_equal_jobs_have_equal_bytes_and_names() -> None:
    one = decode_job(tree(trainer={"seed": 1, "batch_size": 32}))
    two = decode_job(dict(reversed(tree(trainer={"batch_size": 32, "seed": 1}).items())))
    assert canonical_json(one) == canonical_json(two)
    assert sha256(one) == sha256(two)
    assert sha256(one) != sha256(decode_job(tree(trainer={"seed": 2, "batch_size": 32})))


def test_the_plain_form_is_the_form_that_people_write() -> None:
    plain = job_to_plain(decode_job(tree()))
    assert plain["optim"] == {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1}
    assert plain["guard"] == {"name": "trend", "threshold": None}
    assert decode_job(plain) == decode_job(tree())


def test_a_spec_file_is_read_back(tmp_path: Path) -> None:
    job = decode_job(tree())
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_document(job), indent=2))
    assert load_spec(path) == job


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a spec.json of flodl"),
        ("{}", "is not a spec.json of flodl"),
        (f'{{"schema": {SCHEMA + 1}, "sha256": "", "job": {{}}}}', f"this flodl reads schema {SCHEMA}"),
        (f'{{"schema": {SCHEMA}, "sha256": "", "job": []}}', "must be a block of keys"),
        (f'{{"schema": {SCHEMA}, "sha256": "", "job": {{}}}}', "cluster: is missing"),
    ],
)
def test_a_file_that_is_no_spec_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        decode_document(text.encode(), "spec.json")


def test_a_changed_spec_is_refused() -> None:
    document = spec_document(decode_job(tree()))
    document["job"]["trainer"]["seed"] = 99
    with pytest.raises(ConfigError, match="the job is not the one that its sha256 names"):
        decode_document(json.dumps(document).encode(), "spec.json")


def test_a_spec_from_before_a_key_was_there_is_read_and_the_key_has_its_default() -> None:
    job = decode_job(tree())
    document = json.loads(json.dumps(spec_document(job)))
    del document["job"]["checkpoint"]["every_minutes"]
    old = json.dumps(document["job"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    document["sha256"] = hashlib.sha256(old.encode()).hexdigest()
    assert decode_document(json.dumps(document, indent=2).encode(), "spec.json") == job


def test_a_spec_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        load_spec(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        load_spec(tmp_path)
