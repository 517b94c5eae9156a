"""Runs are told apart by what a person would type: the choice of a group, and a key only where a choice does not say it
all. Equal words mean equal jobs, and only then."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from flodl.record.choices import read_choices
from flodl.record.folder import RunFolder
from flodl.report.differences import Job, job_in, overrides_of

MLP = {"model._target_": "MLP", "model.hidden": [256, 128], "model.in_shape": [1, 8, 8]}
RESNET = {"model._target_": "ResNet", "model.depth": 20, "model.in_shape": [1, 8, 8]}
DIGITS = {"dataset._target_": "digits", "dataset.image_shape": [1, 8, 8]}
MNIST = {"dataset._target_": "mnist", "dataset.image_shape": [1, 28, 28]}
BARE = {"optim.lr": 0.1, "trainer.seed": 0}


def job(model: str = "mlp", dataset: str = "digits", *typed: str, **more: object) -> Job:
    """As it is composed. more: keys, `__` for the dot."""
    keys = BARE | (MLP if model == "mlp" else RESNET) | (DIGITS if dataset == "digits" else MNIST)
    keys |= {"model.in_shape": keys["dataset.image_shape"], **{k.replace("__", "."): v for k, v in more.items()}}
    return Job(keys, 1, {"task": "train", "model": model, "dataset": dataset, "optim": "sgd"}, typed)


def from_elsewhere(like: Job, **more: object) -> Job:
    """The same job, of a command that chose nothing: task=resume, a program."""
    return Job({**like.keys, **{k.replace("__", "."): v for k, v in more.items()}}, 1)


def test_a_choice_stands_for_its_group_and_what_follows_from_another_needs_no_words() -> None:
    assert overrides_of([job("mlp"), job("resnet20")]) == [("model=mlp",), ("model=resnet20",)]
    assert overrides_of([job("mlp", "digits"), job("mlp", "mnist")]) == [("dataset=digits",), ("dataset=mnist",)]
    assert overrides_of([job(), job()]) == [(), ()]


def test_a_key_is_told_where_it_was_typed_or_where_one_choice_has_several_values() -> None:
    typed = job("mlp", "digits", "optim.lr=0.05", optim__lr=0.05)
    assert overrides_of([typed, job("resnet20")]) == [
        ("model=mlp", "optim.lr=0.05"),
        ("model=resnet20", "optim.lr=0.1"),
    ]
    wide = job("mlp", model__hidden=[512])
    assert overrides_of([job("mlp"), wide, job("resnet20")]) == [
        ("model=mlp", "model.hidden=[256,128]"),
        ("model=mlp", "model.hidden=[512]"),
        ("model=resnet20", "~model.hidden"),
    ]


def test_what_everybody_typed_is_told_once_for_all_and_a_seed_last() -> None:
    runs = [job("mlp", "digits", "cluster=rehearsal", f"trainer.seed={n}", "name=x", trainer__seed=n) for n in (0, 1)]
    assert overrides_of(runs) == [("cluster=rehearsal", "trainer.seed=0"), ("cluster=rehearsal", "trainer.seed=1")]
    nets = [job("mlp", "digits", "model=mlp", f"model.hidden=[{n}]", model__hidden=[n]) for n in (8, 9)]
    assert overrides_of(nets) == [("model=mlp", "model.hidden=[8]"), ("model=mlp", "model.hidden=[9]")]


def test_a_run_that_chose_nothing_has_the_name_of_one_that_is_like_it_or_tells_its_keys() -> None:
    own = from_elsewhere(job("mlp"), model__hidden=[9])
    found = overrides_of([job("mlp"), from_elsewhere(job("mlp")), own, job("resnet20")])
    assert found[0] == found[1] == ("model=mlp",)
    assert found[2] == ("model._target_=MLP", "model.hidden=[9]", "~model.depth")
    assert found[3] == ("model=resnet20",)
    only = overrides_of([job("mlp"), own])
    assert only == [(), ("model.hidden=[9]",)], "one choice for all that chose says nothing"


def test_equal_words_mean_equal_jobs_and_only_then() -> None:
    jobs = [
        maker(job(model, dataset, *typed, **more))
        for model, dataset, maker in itertools.product(("mlp", "resnet20"), ("digits", "mnist"), (lambda j: j,
                                                                                                  from_elsewhere))
        for typed, more in (((), {}), (("optim.lr=0.2",), {"optim__lr": 0.2}), ((), {"model__hidden": [1]}))
    ]  # fmt: skip
    for one, other in itertools.combinations(jobs, 2):
        told = overrides_of([one, other, *jobs[:3]])
        assert (told[0] == told[1]) == (one.keys == other.keys), (one, other, told[:2])


def test_long_values_and_hosts_are_cut_to_what_can_be_read() -> None:
    def on(*speeds: float) -> Job:
        keys: dict[str, object] = {f"cluster.workers.{i}.speed": speed for i, speed in enumerate(speeds)}
        return Job(keys | {"a.b": "x" * 500}, 1)

    found = overrides_of([on(1.0, 0.4), on(1.0), Job({"a.b": "y" * 500, "cluster.workers.0.speed": 1.0}, 1)])
    assert "~cluster.workers.1.speed" in found[1]
    assert all(len(text) < 90 for texts in found for text in texts)
    assert found[1] != found[2]


def test_what_hydra_left_is_read_and_what_it_did_not_leave_is_no_choice(tmp_path: Path) -> None:
    path = tmp_path / "hydra.yaml"
    assert read_choices(path).chosen == {}
    path.write_text(
        "hydra:\n  overrides: {task: ['model=mlp']}\n  runtime: {choices: {model: mlp, experiment: null}}\n"
    )
    found = read_choices(path)
    assert (found.chosen, found.typed) == ({"model": "mlp"}, ("model=mlp",))
    for damaged in ("[", "hydra: 3", "hydra: {runtime: {choices: 1}}", "\x00", "- a"):
        path.write_text(damaged)
        assert read_choices(path).chosen == {}, damaged


def test_what_sets_runs_apart_can_be_typed_whatever_it_is() -> None:
    values = ["a b", "a,b", "null", "7", "it's", "größe", "a=b", "range(1,3)", "", "two\nlines", "x\\", "#1", None,
              True, 1e-7, ["a,b", "c d"], {}]  # fmt: skip
    jobs = [job("mlp", "digits", f"+model.note={n}", model__note=value) for n, value in enumerate(values)]
    for value, (text,) in zip(values, overrides_of(jobs), strict=True):
        read = OverridesParser.create().parse_override(text)
        assert (read.key_or_group, read.is_force_add(), read.is_sweep_override()) == ("model.note", True, False)
        assert plain(read.value()) == value
        assert type(plain(read.value())) is type(value)


def test_what_lies_in_an_added_map_is_added_too_and_nobody_deletes_what_others_added() -> None:
    one = job("mlp", "digits", "+model.extra={x:1}", model__extra__x=1)
    two = job("mlp", "digits", "+model.extra={x:2}", model__extra__x=2)
    assert overrides_of([one, two, job()]) == [("++model.extra.x=1",), ("++model.extra.x=2",), ()]
    assert overrides_of([one, job("resnet20")]) == [("model=mlp", "++model.extra.x=1"), ("model=resnet20",)]
    more = job("mlp", "digits", "++optim.lr=0.2", optim__lr=0.2)
    without = Job({key: value for key, value in BARE.items() if key != "optim.lr"} | MLP | DIGITS, 1,
                  job().chosen, ("~optim.lr",))  # fmt: skip
    assert overrides_of([more, without]) == [("++optim.lr=0.2",), ("~optim.lr",)], "it was there, and was deleted"
    chosen = job("mlp", "digits", "+model=mlp")
    bare = from_elsewhere(Job(BARE | DIGITS))
    assert len(set(overrides_of([chosen, bare]))) == 2, "a choice that was added is no key that was added"


def test_maps_deep_in_lists_are_told_part_by_part(runs: Path) -> None:
    jobs: list[Job] = []
    for name, size in (("a", 1), ("b", 2)):
        folder = RunFolder.adopt(runs / name)
        folder.write_spec(json.dumps({"model": {"blocks": [[{"true": size, "more": {}}]]}}).encode(), name)
        jobs.append(job_in(folder))
    assert overrides_of(jobs) == [("model.blocks.0.0.true=1",), ("model.blocks.0.0.true=2",)]


def plain(read: object) -> object:
    return OmegaConf.to_container(OmegaConf.create({"value": read}))["value"]  # pyright: ignore
