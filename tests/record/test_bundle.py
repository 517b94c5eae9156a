"""Bundles appear whole, go whole, and are looked at before they are trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flodl.errors import ConfigError, FlodlError
from flodl.record.bundle import BundleStore
from flodl.record.tensor_header import encode_head
from flodl.record.weights import write_weights
from flodl.spec.checkpoint import BestConfig
from tests.record.bundles import STEM, content, digest, meta, save, store, weights_in, weights_of


def names(folder: Path) -> set[str]:
    """Without the weights, which lie beside any bundle."""
    return {p.name.removeprefix(STEM) for p in folder.iterdir()} - {"weights.safetensors"}


def parts(*rounds: int) -> set[str]:
    return {f".r{n}{end}" for n in rounds for end in (".fdl", ".outer.fdl", ".meta.json")} | {".fdl", ".meta.json"}


def rounds(of: BundleStore) -> list[int]:
    return [bundle.round for bundle in of.bundles()]


def refusal(of: BundleStore, round_: int | None = None, resume: str = "exact") -> str:
    with pytest.raises(ConfigError) as caught:
        of.load(round_, resume=resume)  # pyright: ignore[reportArgumentType]
    return str(caught.value)


def test_a_bundle_is_three_files_and_two_names_for_people(runs: Path) -> None:
    saved = save(store(runs / "checkpoints"), 7, epoch=3, coordinator={"ledger": {"done": [[0, 640]]}})
    folder = runs / "checkpoints"
    assert names(folder) == parts(7)
    assert saved.remarks == ()
    assert (folder / f"{STEM}.fdl").samefile(folder / f"{STEM}.r7.fdl")
    assert (folder / f"{STEM}.meta.json").samefile(folder / f"{STEM}.r7.meta.json")
    told = json.loads((folder / f"{STEM}.r7.meta.json").read_text())
    assert (told["schema"], told["round"], told["epoch"], told["global_step"]) == (1, 7, 3, 70)
    assert told["coordinator"] == {"ledger": {"done": [[0, 640]]}}
    assert [(m["name"], m["size"], len(m["sha256"])) for m in told["members"]] == [
        (f"{STEM}.r7.fdl", len(content(7, "model")), 64),
        (f"{STEM}.r7.outer.fdl", len(content(7, "outer")), 64),
    ]
    assert weights_in(folder) == weights_of(7)


def test_what_is_loaded_is_what_was_saved(runs: Path) -> None:
    save(store(runs), 7, plain={"optimizer": "torch.optim.SGD"})
    bundle = store(runs).load().bundle
    assert bundle.meta.plain == {"optimizer": "torch.optim.SGD"}
    model, outer = bundle.path("model"), bundle.path("outer")
    assert model is not None
    assert outer is not None
    assert (model.read_bytes(), outer.read_bytes()) == (content(7, "model"), content(7, "outer"))


def test_a_bundle_without_outer_state_has_one_member(runs: Path) -> None:
    kept = store(runs)
    saving = kept.begin(1)
    sink = saving.open("model")
    sink.write(b"all")
    sink.commit(digest(b"all"))
    assert kept.commit(saving, meta(1)).bundle.path("outer") is None
    assert names(runs) == parts(1) - {".r1.outer.fdl"}


def test_nothing_appears_before_the_commit_and_an_abandoned_save_leaves_nothing(runs: Path) -> None:
    kept = store(runs)
    saving = kept.begin(1)
    saving.open("model").write(b"half")
    assert kept.newest() is None
    saving.abandon()
    assert names(runs) == set()


def test_a_save_that_did_not_arrive_whole_is_refused_and_leaves_nothing(runs: Path) -> None:
    kept = store(runs)
    saving = kept.begin(1)
    saving.open("model").write(b"half")
    with pytest.raises(FlodlError, match=r"my model.r1.fdl: not all of it has arrived: round 1 was not saved"):
        kept.commit(saving, meta(1))
    assert names(runs) == set()


def test_a_later_save_takes_the_place_of_one_under_way(runs: Path) -> None:
    kept = store(runs)
    old = kept.begin(1)
    sink = old.open("model")
    sink.write(b"half")
    save(kept, 2)
    with pytest.raises(FlodlError, match="save of round 1 is over; a later one has begun"):
        sink.write(b"the other half")
    with pytest.raises(FlodlError, match="save of round 1 is over"):
        kept.commit(old, meta(1))
    assert names(runs) == parts(2)


def test_an_upload_that_begins_anew_takes_the_place_of_the_first(runs: Path) -> None:
    kept = store(runs)
    saving = kept.begin(1)
    saving.open("model").write(b"of a rank that died")
    sink = saving.open("model")
    sink.write(b"of the next one")
    sink.commit(digest(b"of the next one"))
    model = kept.commit(saving, meta(1)).bundle.path("model")
    assert model is not None
    assert model.read_bytes() == b"of the next one"


def test_the_newest_stay_and_the_rest_goes(runs: Path) -> None:
    kept = store(runs, keep=2)
    assert [save(kept, n).removed for n in (1, 2, 3, 5)] == [(), (), (1,), (2,)]
    assert names(runs) == parts(3, 5)
    assert (runs / f"{STEM}.fdl").samefile(runs / f"{STEM}.r5.fdl")


def test_the_best_stay_too(runs: Path) -> None:
    kept = store(runs, keep=1, best=BestConfig(metric="accuracy", keep=2))
    for n, accuracy in enumerate([0.5, 0.9, 0.7, 0.8, 0.1], start=1):
        save(kept, n, figures={"accuracy": accuracy})
    save(kept, 6)
    assert rounds(kept) == [6, 4, 2]


def test_of_a_loss_the_least_is_the_best(runs: Path) -> None:
    kept = store(runs, keep=1, best=BestConfig(metric="loss"))
    for n, loss in enumerate([0.5, 0.1, 0.7], start=1):
        save(kept, n, figures={"loss": loss})
    assert rounds(kept) == [3, 2]


def test_without_a_limit_all_stay(runs: Path) -> None:
    kept = store(runs, keep=None)
    for n in range(1, 6):
        save(kept, n)
    assert rounds(kept) == [5, 4, 3, 2, 1]


def test_what_is_learnt_of_a_bundle_later_is_written_into_it(runs: Path) -> None:
    kept = store(runs, keep=1, best=BestConfig(metric="accuracy"))
    bundle = save(kept, 1).bundle
    kept.amend(bundle, reason="all_ranks_lost", figures={"accuracy": 0.9})
    found = store(runs).load().bundle
    assert (found.meta.reason, found.meta.figures) == ("all_ranks_lost", {"accuracy": 0.9})
    assert (runs / f"{STEM}.meta.json").samefile(runs / f"{STEM}.r1.meta.json")
    save(kept, 2)
    assert rounds(kept) == [2, 1]


def test_a_round_that_is_saved_again_takes_the_place_of_the_old_bundle(runs: Path) -> None:
    kept = store(runs, keep=None)
    for n in (1, 2):
        save(kept, n)
    save(kept, 1, mark=" again")
    assert rounds(kept) == [1, 2]
    model = store(runs).load().bundle.path("model")
    assert model is not None
    assert model.read_bytes() == content(1, "model", " again")
    assert names(runs) == (parts(1, 2) - {".r1.fdl", ".r1.outer.fdl"}) | {".r1-2.fdl", ".r1-2.outer.fdl"}


def test_after_going_back_the_last_saved_counts_as_the_newest_whatever_its_round(runs: Path) -> None:
    kept = store(runs, keep=1)
    save(kept, 10)
    assert save(kept, 4).removed == (10,)
    assert store(runs).load().bundle.round == 4


# ------------------------------------------------------------------------------------------- what has been damaged


@pytest.mark.row(24)
def test_a_flipped_byte_is_told_with_member_and_digest(runs: Path) -> None:
    save(store(runs), 3)
    path = runs / f"{STEM}.r3.outer.fdl"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    digest = json.loads((runs / f"{STEM}.r3.meta.json").read_text())["members"][1]["sha256"]
    text = refusal(store(runs))
    assert text.startswith(f"{path}: is damaged: its SHA-256 is ")
    assert text.endswith(f", and its meta says {digest}")


def test_a_size_that_is_wrong_is_told_before_a_byte_is_read(runs: Path) -> None:
    save(store(runs), 3)
    path = runs / f"{STEM}.r3.fdl"
    os.truncate(path, 1 << 42)  # sparse: to read it would take hours
    assert refusal(store(runs)) == f"{path}: is damaged: {1 << 42} bytes, and its meta says {len(content(3, 'model'))}"


@pytest.mark.row(24)
def test_a_missing_member_is_told(runs: Path) -> None:
    save(store(runs), 3)
    (runs / f"{STEM}.r3.fdl").unlink()
    assert refusal(store(runs), 3) == f"{runs}/{STEM}.r3.fdl: is damaged: the file is missing"


@pytest.mark.row(24)
def test_latest_valid_goes_back_to_the_newest_whole_one_and_says_so(runs: Path) -> None:
    kept = store(runs, keep=None)
    for n in (1, 2, 3):
        save(kept, n)
    (runs / f"{STEM}.r3.fdl").unlink()
    (runs / f"{STEM}.r2.meta.json").write_text("{")
    assert "the file is missing; checkpoint.resume=latest_valid takes the newest one that is whole" in refusal(kept)
    loaded = kept.load(resume="latest_valid")
    assert loaded.bundle.round == 1
    assert [text.partition(": ")[0] for text in loaded.passed_over] == [
        f"{runs}/{STEM}.r3.fdl",
        f"{runs}/{STEM}.r2.meta.json",
    ]


def test_exact_does_not_pass_over_a_newest_meta_that_is_damaged(runs: Path) -> None:
    kept = store(runs, keep=None)
    for n in (1, 2):
        save(kept, n)
    path = runs / f"{STEM}.r2.meta.json"
    path.write_text(path.read_text().replace('"epoch": 0', '"epoch": 9'))
    assert refusal(kept).startswith(f"{path}: is damaged: its content is not the one that its sha256 names")
    assert kept.load(1).bundle.round == 1


def test_no_bundle_of_that_round_or_none_at_all(runs: Path) -> None:
    assert refusal(store(runs)) == (
        f"{runs}: holds no bundle called my model; name the folder and the stem (checkpoint.stem) of a run"
    )
    save(store(runs), 4)
    assert refusal(store(runs), 5) == f"{runs}: holds no bundle of round 5; there are rounds 4"


@pytest.mark.row(24)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told | {"schema": 2}, "has schema 2, and this flodl reads 1; use the flodl that wrote it"),
        (lambda told: {"weights": "mine"}, "is not the meta file of a bundle of flodl; name another folder or stem"),
        (lambda told: [1], "is not the meta file of a bundle of flodl"),
    ],
)
def test_what_another_flodl_or_nobody_of_us_wrote_is_refused(runs: Path, change, words: str) -> None:
    save(store(runs), 4)
    path = runs / f"{STEM}.r4.meta.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert words in refusal(store(runs))


def test_a_meta_that_names_files_elsewhere_is_refused_whatever_its_digest(runs: Path) -> None:
    from flodl.record.bundle_meta import Member, encode_meta

    (runs / "checkpoints").mkdir()
    (runs / "secret").write_bytes(b"x")
    member = Member(kind="model", name="../secret", size=1, sha256="0" * 64)
    (runs / "checkpoints" / f"{STEM}.r4.meta.json").write_bytes(encode_meta(meta(4, members=(member,))))
    assert "is damaged: it names '../secret', which is no model of its round" in refusal(store(runs / "checkpoints"))
    save(store(runs / "checkpoints", keep=1), 5)
    assert (runs / "secret").exists()


def test_old_damaged_metas_go_and_those_of_a_newer_flodl_stay(runs: Path) -> None:
    kept = store(runs, keep=1)
    save(kept, 1)
    path = runs / f"{STEM}.r1.meta.json"
    newer = path.read_text().replace('"schema": 1', '"schema": 2')
    path.write_text("{")
    assert save(kept, 2).removed == (1,)
    (runs / f"{STEM}.r1.meta.json").write_text(newer)
    (runs / f"{STEM}.r1.fdl").write_bytes(b"theirs")
    assert save(kept, 3).removed == (2,)
    assert names(runs) == parts(3) | {".r1.meta.json", ".r1.fdl"}


def test_a_number_that_json_cannot_hold_is_told_with_its_place_and_nothing_is_saved(runs: Path) -> None:
    kept = store(runs)
    save(kept, 1)
    with pytest.raises(FlodlError, match=r"round 2: meta.coordinator.pace\[1\] is nan, which JSON cannot hold"):
        save(kept, 2, coordinator={"pace": [1.0, float("nan")]})
    assert names(runs) == parts(1)


def test_files_of_others_are_left_alone_and_what_is_left_of_weights_is_swept(runs: Path) -> None:
    others = {
        "weights.safetensors",
        ".weights.safetensors.0123.tmp",
        f"{STEM}2.r1.fdl",
        f"{STEM}.r1.fdl.bak",
        "r1.fdl",
    }
    for name in (*others, ".weights.safetensors.0123abcd.tmp"):  # the last: of an upload that a kill interrupted
        (runs / name).write_bytes(b"")
    save(store(runs, keep=1), 2)
    assert {p.name for p in runs.iterdir()} == others | {STEM + part for part in parts(2)}
    assert weights_in(runs) == weights_of(2)


def test_weights_and_links_that_a_kill_left_behind_their_bundle_are_mended_and_a_users_own_file_is_not(
    runs: Path,
) -> None:
    kept = store(runs, keep=None)
    for n in (1, 2):
        save(kept, n)
    weights, link = runs / "weights.safetensors", runs / f"{STEM}.fdl"
    for missing in (True, False):  # as it is where a kill came after the meta's rename
        link.unlink()
        link.hardlink_to(runs / f"{STEM}.r1.fdl")
        if missing:
            weights.unlink()
        else:
            write_weights(kept.bundles()[1])
            assert weights_in(runs) == weights_of(1)
        store(runs).mend()
        assert weights_in(runs) == weights_of(2)
        assert link.samefile(runs / f"{STEM}.r2.fdl")
    before = weights.stat()
    store(runs).mend()
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    mine = encode_head({}, {"format": "pt"})
    weights.write_bytes(mine)
    store(runs).mend()
    assert weights.read_bytes() == mine


def test_a_folder_that_cannot_be_made_is_told_with_the_reason(runs: Path) -> None:
    (runs / "checkpoints").write_bytes(b"a file")
    with pytest.raises(FlodlError, match=r"checkpoints: File exists \(EEXIST\): the bundle of round 1 was not saved"):
        store(runs / "checkpoints").begin(1)
