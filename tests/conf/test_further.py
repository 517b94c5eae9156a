"""Every word that cannot be applied is told, not the first alone, and nothing that only hangs on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.app import run
from flodl.door.tree import job_from
from flodl.errors import ConfigError

TOLD = {
    "unknown keys": (["epochs=3", "lr=0.1", "batch_size=8"], ["epochs", "lr", "batch_size"]),
    "and wrong values of known ones": (
        ["elche.max_overshoot=-1", "elche.anchor=0", "guard.foo=1", "optim.lr=-1"],
        ["guard.foo", "elche.anchor", "elche.max_overshoot", "optim.lr"],
    ),
    "of a list's item too": (
        ["cluster=rehearsal", "foo=1", "cluster.workers.0.speed=much"],
        ["foo", "cluster.workers[0].speed"],
    ),
    "a word without a value": (["trainer.num_epochs", "lr=1", "trainer.batch_size=0"],
                               ["trainer.num_epochs", "lr", "trainer.batch_size"]),
    "what cannot be read": (["name=a{", "lr=1"], ["name=a{", "lr"]),
    "keys that are forced in and out": (["~trainer.foo", "++trainer.bar=1", "lr=1"],
                                        ["~trainer.foo", "lr", "trainer.bar"]),
    "choices; values wait for them": (["model=mpl", "optim=sdg", "epochs=2", "trainer.batch_size=0"],
                                      ["optim", "model", "epochs"]),
    "what lies beneath a choice waits for it": (["model=mpl", "model.hidden=[4]", "lr=1"], ["model", "lr"]),
    "a misspelt group is one": (["modl=mlp", "model.hidden=[4]", "lr=1"], ["modl", "lr"]),
    "a recipe may bring anything": (["experiment=nobody", "lr=1"], ["experiment"]),
    "words of a task": (["task=compare", "run=last", "lr=1"], ["run", "lr"]),
    "a file of another configuration is not asked": (["--config-name=mine", "lr=1"], ["config"]),
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    return tmp_path


@pytest.mark.parametrize("case", TOLD)
def test_everything_that_is_wrong_is_told_at_once(case: str, here: Path) -> None:
    words, keys = TOLD[case]
    with pytest.raises(ConfigError) as caught:
        run(words)
    assert [problem.key for problem in caught.value.problems] == keys
    assert not (here / "outputs").exists()


def test_of_what_a_choice_brings_nothing_is_said_beside_a_typed_word(here: Path) -> None:
    (here / "conf" / "trainer").mkdir(parents=True)
    (here / "conf" / "trainer" / "mine.yaml").write_text("num_epochs: 0\nbatch_size: 8\n")
    with pytest.raises(ConfigError) as caught:
        run(["trainer=mine", "lr=1", "trainer.batch_size=0"])
    assert [problem.key for problem in caught.value.problems] == ["lr", "trainer.batch_size"]


def test_a_program_is_told_all_its_words_too(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        job_from(["epochs=3", "lr=1", "optim=sgd"], {})
    assert [problem.key for problem in caught.value.problems] == ["epochs", "lr"]
