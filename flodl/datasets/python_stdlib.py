"""Characters of the Python standard library's own sources: real text that is there on every machine.

Which part a file belongs to follows from its name, the vocabulary is fixed, and what differs between installations of
one Python release (tests, graphical parts, generated tables, what a distribution adds) is left out. Hosts with the
same sources have the same data; others are told apart by the data's signature and refused.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from flodl.datasets.files import MissingDataError
from flodl.datasets.splits import Splits, require
from flodl.errors import ConfigError, Problem

__all__ = ["VOCABULARY", "decode", "encode", "python_stdlib"]

# Newline, tab, the printable ASCII characters; the number after the last one is everything else.
VOCABULARY = "\n\t" + "".join(map(chr, range(0x20, 0x7F)))
UNKNOWN = len(VOCABULARY)
SKIPPED_FOLDERS = frozenset(
    ["site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "distutils"]
) | {"ensurepip", "encodings", "pydoc_data", "__pycache__"}
SKIPPED_NAMES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
MAX_FILE_BYTES = 1 << 22
SOURCE = "Python's sources come with it; a distribution may part them (Debian: libpython3-stdlib)"

_CODES = np.full(256, UNKNOWN, dtype=np.uint8)
_CODES[np.frombuffer(VOCABULARY.encode("ascii"), dtype=np.uint8)] = np.arange(UNKNOWN, dtype=np.uint8)


def python_stdlib(
    *,
    block_size: int = 128,
    vocab_size: int = UNKNOWN + 1,
    eval_fraction: float = 0.1,
    num_eval: int | None = 500,
    folder: str | None = None,
) -> Splits:
    """Blocks (inputs, targets), both uint8 (n, block_size): a target is the character after its input.

    Blocks follow each other through the files without overlap. eval_fraction: of the files, chosen by their names'
    hash. num_eval: that many evaluation blocks, evenly spread; None: all. folder: another folder of .py files; None:
    the running interpreter's standard library.
    Raises MissingDataError for a folder without sources, ConfigError for arguments that do not fit.
    """
    require("vocab_size", vocab_size, UNKNOWN + 1)
    _check(block_size, eval_fraction)
    root = Path(folder or sysconfig.get_path("stdlib"))
    parts: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for path in _files(root):
        parts[_is_held_back(path.relative_to(root).as_posix(), eval_fraction)].append(encode(path.read_bytes()))
    train, held = _blocks(parts[False], block_size), _blocks(parts[True], block_size)
    if train is None:
        raise MissingDataError(str(root), f"no .py files of {block_size} characters in all; {SOURCE}")
    return Splits(train=TensorDataset(*train), eval=None if held is None else TensorDataset(*_spread(held, num_eval)))


def encode(source: bytes) -> np.ndarray:
    """The numbers of a UTF-8 text's characters, uint8 (n,). What is not in the vocabulary is one number, UNKNOWN."""
    text = source.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return _CODES[np.minimum(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"), 255)]


def decode(numbers: Sequence[int]) -> str:
    """The text of the numbers; a replacement character for what is unknown."""
    return "".join(VOCABULARY[number] if number < UNKNOWN else "\N{REPLACEMENT CHARACTER}" for number in numbers)


def _files(root: Path) -> Iterator[Path]:
    """Source files in the order of their names, the same on every host."""
    found = [(path.relative_to(root).as_posix(), path) for path in root.rglob("*.py")]
    for name, path in sorted(found):
        is_skipped = not SKIPPED_FOLDERS.isdisjoint(name.split("/")[:-1]) or name.startswith(SKIPPED_NAMES)
        if not is_skipped and path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
            yield path


def _is_held_back(name: str, fraction: float) -> bool:
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def _blocks(texts: list[np.ndarray], block_size: int) -> tuple[Tensor, Tensor] | None:
    """Inputs and targets as two views of one text, a character apart; None where there is no whole block."""
    text = torch.from_numpy(np.concatenate([*texts, np.zeros(0, dtype=np.uint8)]))
    count = (len(text) - 1) // block_size
    if count < 1:
        return None
    size = count * block_size
    return text[:size].view(count, block_size), text[1 : size + 1].view(count, block_size)


def _spread(held: tuple[Tensor, Tensor], wanted: int | None) -> tuple[Tensor, Tensor]:
    count = len(held[0])
    if wanted is None or wanted >= count:
        return held
    chosen = torch.arange(wanted) * count // wanted
    return held[0][chosen], held[1][chosen]


def _check(block_size: int, eval_fraction: float) -> None:
    problems: list[Problem] = []
    if block_size < 1:
        problems.append(Problem(key="dataset.block_size", value=str(block_size), constraint="must be 1 or more"))
    if not 0.0 <= eval_fraction < 1.0:
        constraint = "must lie within 0 (nothing is evaluated) and below 1"
        problems.append(Problem(key="dataset.eval_fraction", value=str(eval_fraction), constraint=constraint))
    if problems:
        raise ConfigError(problems)
