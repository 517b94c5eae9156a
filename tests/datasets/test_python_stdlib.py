"""Text of the standard library: the same on every host with the same sources, parted by file, in a fixed vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from flodl.datasets.files import MissingDataError
from flodl.datasets.python_stdlib import UNKNOWN, VOCABULARY, decode, encode, python_stdlib
from flodl.engine.reading import signature
from flodl.errors import ConfigError


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Twenty files in two folders, each a line of its own letter; and things that are left out."""
    for number in range(20):
        path = tmp_path / ("pack" if number % 2 else ".") / f"m{number:02}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(chr(ord("a") + number) * 99 + "\n")
    for name in ("test/test_x.py", "site-packages/x.py", "idlelib/x.py", "_sysconfigdata__x.py", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#" * 500)
    (tmp_path / "link.py").symlink_to(tmp_path / "notes.txt")
    return tmp_path


def test_the_running_interpreters_library_is_text() -> None:
    splits = python_stdlib()
    inputs, targets = splits.train.tensors
    assert (inputs.dtype, inputs.shape[1:], targets.shape) == (torch.uint8, (128,), inputs.shape)
    assert len(inputs) > 10_000
    assert len(splits.eval) == 500
    assert (inputs == UNKNOWN).float().mean() < 1e-3
    assert signature(splits.train) == signature(python_stdlib().train)


def test_a_target_is_the_character_after_its_input(sources: Path) -> None:
    inputs, targets = python_stdlib(folder=str(sources), block_size=10).train.tensors
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs[1:, 0], targets[:-1, -1])


def test_text_is_parted_by_file_and_what_differs_between_installations_is_left_out(sources: Path) -> None:
    splits = python_stdlib(folder=str(sources), block_size=10, eval_fraction=0.3, num_eval=None)
    texts = [set(decode(part.tensors[0].flatten().tolist())) - {"\n"} for part in (splits.train, splits.eval)]
    assert texts[0] & texts[1] == set()
    assert texts[0] | texts[1] == {chr(ord("a") + number) for number in range(20)}


def test_files_come_in_the_order_of_their_names(sources: Path) -> None:
    inputs, _ = python_stdlib(folder=str(sources), block_size=1, eval_fraction=0.0).train.tensors
    found = list(dict.fromkeys(decode(inputs.flatten().tolist()).replace("\n", "")))
    assert found == [*"acegikmoqs", *"bdfhjlnprt"]


def test_evaluation_blocks_are_spread_evenly(sources: Path) -> None:
    every = python_stdlib(folder=str(sources), block_size=10, eval_fraction=0.5, num_eval=None).eval.tensors[0]
    some = python_stdlib(folder=str(sources), block_size=10, eval_fraction=0.5, num_eval=7).eval.tensors[0]
    assert torch.equal(some, every[torch.arange(7) * len(every) // 7])
    assert python_stdlib(folder=str(sources), block_size=10, eval_fraction=0.0).eval is None


def test_every_character_has_a_number_and_comes_back() -> None:
    assert encode(VOCABULARY.encode()).tolist() == list(range(UNKNOWN)) == list(range(97))
    assert decode(encode("a\r\nb\täß€\N{SNAKE}".encode()).tolist()) == "a\nb\t" + 4 * "\N{REPLACEMENT CHARACTER}"
    assert encode(b"\xff\x00\x7f").tolist() == [UNKNOWN] * 3


def test_a_folder_without_sources_says_so(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as missing:
        python_stdlib(folder=str(tmp_path))
    assert missing.value.filename == str(tmp_path)
    assert "no .py files of 128 characters" in missing.value.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 256}, "dataset.vocab_size=256: the data has 98; set it to 98"),
        ({"block_size": 0}, "dataset.block_size=0: must be 1 or more"),
        ({"eval_fraction": 1.0}, "dataset.eval_fraction=1.0: must lie within 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        python_stdlib(**arguments)  # type: ignore[arg-type]
