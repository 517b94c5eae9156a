"""The keeper: a rank's bytes become a bundle, what came of it is told, and nobody else's bytes are taken."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flodl.decide.messages import (
    BundleKept,
    CallbackResult,
    Event,
    Goodbye,
    RankDied,
    RankFailed,
    Restart,
    SaveBegun,
)
from flodl.errors import FlodlError
from flodl.record.bundle import BundleStore
from flodl.record.bundle_reading import BundleReader
from flodl.record.keeper import Keeper, Owner
from tests.record.bundles import content, digest, weights_in, weights_of

MODEL, CENTER = content(0, "model"), content(0, "outer")


class Heard:
    """A keeper and what it tells."""

    def __init__(self, folder: Path, keep: int | None = 2) -> None:
        self.store = BundleStore(folder, "model", keep)
        self.told: queue.SimpleQueue[Event] = queue.SimpleQueue()
        owner = Owner(run_id="run", spec_sha256="f" * 64, world_size=2)
        self.snapshot: dict[str, Any] = {"state": {"accepted": 0}}
        self.keeper = Keeper(self.store, owner, fixed=lambda: self.snapshot, tell=self.told.put)

    def begin(self, round_: int, rank: int = 0, **fields: Any) -> None:
        told = {"why": "checkpoint", "generation": 1, "epoch": 0, "global_step": 7, "reason": "test", **fields}
        begun = SaveBegun(rank=rank, round=round_, **told)
        self.keeper.observe(BundleKept(at=0.0, rank=9, round=0), (begun,))

    def upload(self, name: str, data: bytes, rank: int = 0) -> None:
        sink = self.keeper.open_upload(rank, name)
        assert sink is not None
        sink.write(memoryview(data))
        sink.commit(digest(data))

    def kept(self) -> BundleKept:
        event = self.told.get(timeout=10.0)
        assert isinstance(event, BundleKept)
        return event


@contextmanager
def keeping(folder: Path, **options: Any) -> Iterator[Heard]:
    heard = Heard(folder, **options)
    try:
        yield heard
    finally:
        heard.keeper.close()


def save(heard: Heard, round_: int, rank: int = 0, **fields: Any) -> BundleKept:
    heard.begin(round_, rank, **fields)
    heard.upload(f"r{round_}.plain", b'{"optimizer": {"lr": 1}}', rank)
    heard.upload(f"r{round_}.outer", CENTER, rank)
    heard.upload(f"r{round_}.model", MODEL, rank)
    return heard.kept()


def test_a_bundle_holds_what_arrived_and_what_was_known_when_it_was_ordered(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        heard.snapshot = {"state": {"accepted": 3}}
        assert save(heard, 3) == BundleKept(at=0.0, rank=0, round=3)
        bundle = heard.store.load().bundle
        assert (bundle.round, bundle.meta.global_step, bundle.meta.run_id) == (3, 7, "run")
        assert bundle.meta.coordinator == {"state": {"accepted": 3}}
        assert bundle.meta.plain == {"optimizer": {"lr": 1}}
        read = BundleReader(bundle).read
        assert [read(f"r3.{kind}", 0)[0] for kind in ("model", "outer")] == [MODEL, CENTER]
        assert read("r3.model", len(MODEL) - 3) == (MODEL[-3:], len(MODEL))
        with pytest.raises(FlodlError, match="has no other part"):
            read("r4.model", 0)


def test_only_the_rank_that_was_asked_is_heard_and_only_for_that_round(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        with pytest.raises(FlodlError, match="nobody has asked"):
            heard.keeper.open_upload(0, "r1.model")
        heard.begin(5)
        for rank, name in ((1, "r5.model"), (0, "r4.model")):
            with pytest.raises(FlodlError, match="nobody has asked"):
                heard.keeper.open_upload(rank, name)
        for name in ("weights.safetensors", "something"):
            assert heard.keeper.open_upload(0, name) is None, "no part of a bundle: not the keeper's"


def test_the_weights_for_people_are_those_of_the_newest_bundle_whatever_becomes_of_a_save(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        for round_ in (1, 2):
            heard.begin(round_)
            assert weights_in(tmp_path) == (b"" if round_ == 1 else weights_of(1)), "not before the bundle"
            heard.upload(f"r{round_}.model", content(round_, "model"))
            assert heard.kept() == BundleKept(at=0.0, rank=0, round=round_)
            assert weights_in(tmp_path) == weights_of(round_)
        heard.begin(3)
        heard.begin(4, rank=1)  # rank 0 has died
        heard.upload("r4.plain", b"no JSON", rank=1)
        heard.upload("r4.model", content(4, "model"), rank=1)
        assert heard.kept().error
        assert weights_in(tmp_path) == weights_of(2)
        heard.begin(5)
        heard.upload("r5.model", b"no file of tensors")
        (remark,) = heard.kept().remarks
        assert "r5.fdl: not a safetensors file" in remark, "a bundle is there all the same"
        assert (heard.store.load().bundle.round, weights_in(tmp_path)) == (5, weights_of(2))
    assert not list(tmp_path.glob(".*")), "nothing of the saves that failed stays"


def test_a_save_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        heard.begin(5)
        late = heard.keeper.open_upload(0, "r5.model")
        assert late is not None
        assert save(heard, 6, rank=1).error == ""
        with pytest.raises(FlodlError, match="a later one has begun"):
            late.commit(digest(b""))
        assert [bundle.round for bundle in heard.store.bundles()] == [6]


ONCE = ("r5.plain", "r5.outer", "r5.model")
PARTS = {"r5.plain": b"{}", "r5.outer": CENTER, "r5.model": MODEL}


@pytest.mark.parametrize("arrived", [0, 1, 2, 3, "and is kept"])
def test_a_rank_that_is_asked_again_for_a_round_that_it_is_sending_has_saved_it_once_for_the_last_reason(
    tmp_path: Path, arrived: int | str
) -> None:
    """The run has to end (a rank is dead) while a checkpoint is on its way, or just there; the rank sends all again."""
    number = arrived if isinstance(arrived, int) else 3
    with keeping(tmp_path) as heard:
        heard.begin(5)
        for name in ONCE[:number]:
            heard.upload(name, PARTS[name])
        if number != arrived:
            assert not heard.kept().error
        heard.begin(5, why="max_failure_exceeded")
        for name in (*ONCE[number:], *ONCE):
            heard.upload(name, PARTS[name])
        assert not heard.kept().error
    (bundle,) = heard.store.bundles()
    assert bundle.meta.reason == "max_failure_exceeded"
    assert heard.store.fault(bundle) is None
    assert not [path.name for path in tmp_path.glob(".*")], "of what came twice nothing stays"
    while not heard.told.empty():
        assert heard.kept().error == ""


def test_a_rank_that_is_asked_again_for_a_round_whose_save_has_failed_saves_it_anew(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        heard.begin(5)
        heard.upload("r5.plain", b"no JSON")
        heard.upload("r5.model", MODEL)
        assert heard.kept().error
        assert save(heard, 5, why="max_failure_exceeded").error == ""
        assert heard.store.load().bundle.meta.reason == "max_failure_exceeded"


def test_whatever_goes_wrong_with_a_save_is_told_and_the_next_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **told: object) -> None:
        raise AttributeError("of a bug")

    judged = CallbackResult(name="eval", ok=True, values={"accuracy": 0.5})
    with keeping(tmp_path) as heard:
        heard.begin(5)
        with monkeypatch.context() as patch:
            patch.setattr(heard.store, "commit", fail)
            heard.upload("r5.model", MODEL)
            assert heard.kept().error == "AttributeError: of a bug"
        heard.begin(6, evaluates=True)
        with monkeypatch.context() as patch:
            patch.setattr(heard.store, "bundles", fail)
            heard.keeper.observe(Goodbye(at=0.0, rank=0, callbacks=(judged,)), ())
            assert heard.kept().error == "AttributeError: of a bug"
        assert save(heard, 7).error == ""


def test_a_save_that_never_arrives_whole_leaves_nothing_when_the_run_is_over(tmp_path: Path) -> None:
    with keeping(tmp_path) as heard:
        assert save(heard, 4).error == ""
        before = {path.name for path in tmp_path.iterdir()}
        heard.begin(5)
        heard.upload("r5.outer", CENTER)
        assert len(list(tmp_path.iterdir())) == len(before) + 1
    assert {path.name for path in tmp_path.iterdir()} == before


def test_word_of_a_save_comes_at_once_where_its_rank_is_lost_and_it_is_no_bundle_however_much_comes_later(
    tmp_path: Path,
) -> None:
    """What is lost is the process that was asked: its rank may have been started again."""
    failed = RankFailed(at=0.0, rank=0, kind="step", message="x")
    died = RankDied(at=0.0, rank=0, cause="was ended by SIGKILL")
    with keeping(tmp_path) as heard:
        heard.begin(5)
        for event in (msgspec.structs.replace(died, rank=1), failed, died):
            heard.keeper.observe(event, ())
        told = heard.kept()
        assert (told.round, told.error) == (5, "rank 0 is gone, and had not sent all of it")
        heard.upload("r5.model", MODEL)
        heard.keeper.observe(died, (Restart(rank=0, incarnation=1, reason="test"),))
        heard.begin(6)
        heard.keeper.observe(died, ())
        heard.upload("r6.model", MODEL)
        assert heard.kept() == BundleKept(at=0.0, rank=0, round=6)
        heard.keeper.observe(msgspec.structs.replace(died, incarnation=1), ())
    assert heard.told.empty(), "each is told once"
    assert [bundle.round for bundle in heard.store.bundles()] == [6]


def test_a_disk_that_refuses_is_told_by_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with keeping(tmp_path / "file" / "checkpoints") as heard:
        heard.begin(5)
        assert str(tmp_path / "file") in heard.kept().error


def test_figures_reach_the_bundle_of_the_weights_that_they_judge_before_and_after_it_is_there(tmp_path: Path) -> None:
    figures = CallbackResult(name="eval", ok=True, values={"accuracy": 0.5})
    earlier = CallbackResult(name="eval", ok=True, values={"accuracy": 0.1})  # of a grant that came to nothing
    with keeping(tmp_path) as heard:
        assert save(heard, 1, evaluates=True).error == ""
        heard.keeper.observe(Goodbye(at=0.0, rank=0, callbacks=(figures,)), ())
        heard.begin(2, evaluates=True)
        heard.keeper.observe(Goodbye(at=0.0, rank=0, callbacks=(earlier, figures)), ())
        heard.upload("r2.model", MODEL)
        heard.kept()
        assert [bundle.meta.figures for bundle in heard.store.bundles()] == [{"accuracy": 0.5}, {"accuracy": 0.5}]
        assert save(heard, 3, evaluates=True).error == ""
        failed = msgspec.structs.replace(figures, ok=False, error="ValueError: no labels")
        heard.keeper.observe(Goodbye(at=0.0, rank=0, callbacks=(earlier, failed)), ())
        heard.keeper.close()
        assert heard.store.bundles()[0].meta.figures == {}
