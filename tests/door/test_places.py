"""A program's functions are named where a rank finds them too; else they live in the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.live import ROOT

BESIDE = "def net():\n    return None\n"
PROGRAM = """
import sys
sys.path.insert(0, {added!r})
import {beside}
from flodl.door.named import path_of
def own(): ...
print(path_of(own), path_of({beside}.net), path_of(sys.modules["json"].loads))
"""

GUARDED = """
from flodl.door.named import path_of
def above(): ...
def both(): ...
if __name__ == "__main__":
    def both(): ...
    def below(): ...
    if True:
        class Deep: ...
    print(path_of(above), path_of(both), path_of(below), path_of(Deep))
"""


TYPED = """
import dataclasses, functools
from flodl.door.named import path_of
def hushed(inner):
    @functools.wraps(inner)
    def outer(*args): return inner(*args)
    return outer
@hushed
def step(): ...
class Net:
    def forward(self): ...
@dataclasses.dataclass
class Bare: ...
print(path_of(step), path_of(Net), path_of(Bare))
exec(compile("def step(): ...\\nclass Net:\\n  def forward(self): ...", "<stdin>", "exec"))
print(path_of(step), path_of(Net))
"""


BORROWED = """
import collections, dataclasses, typing
from flodl.door.named import path_of
class Alias(collections.UserDict):
    get = collections.Counter.most_common
class Pair(typing.NamedTuple):
    x: int
class Made: ...
made = {"__name__": __name__}
exec(compile("def __init__(self): ...", "<attrs generated methods>", "exec"), made)  # as attrs does
Made.__init__ = made["__init__"]
@dataclasses.dataclass(slots=True)
class Slim:
    x: int
print(path_of(Alias), path_of(Pair), path_of(Made), path_of(Slim))
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("works_in", "added", "said"),
    [
        ("here", "", "train.own beside.net json.loads"),
        ("", "", "None None json.loads"),  # named here.train, it would not find what lies beside it
        ("other", "", "None None json.loads"),
        ("here", "other", "train.own None json.loads"),
    ],
)
def test_what_a_rank_would_not_find_has_no_path(tmp_path: Path, works_in: str, added: str, said: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / (added or "here") / "beside.py").write_text(BESIDE)
    text = PROGRAM.format(added=str(tmp_path / (added or "here")), beside="beside")
    (tmp_path / "here" / "train.py").write_text(f"import json\n{text}")
    done = run(tmp_path / works_in, str(tmp_path / "here" / "train.py"))
    assert done.stdout.strip() == said, done.stderr


def test_a_folder_that_is_run_as_a_program_has_no_module_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("from flodl.door.places import script\nprint(script())\n")
    for words, said in ((["app"], "None"), (["-m", "app"], "app.__main__")):
        done = run(tmp_path, *words)
        assert done.stdout.strip() == said, done.stderr


def test_what_is_bound_under_the_main_guard_alone_has_no_path(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GUARDED)
    done = run(tmp_path, "train.py")
    assert done.stdout.split() == ["train.above", "train.both", "None", "None"], done.stderr


def test_what_is_typed_in_after_the_program_was_read_is_not_what_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TYPED)
    done = run(tmp_path, "train.py")
    assert done.stdout.split() == ["train.step", "train.Net", "train.Bare", "None", "None"], done.stderr


def test_what_a_class_of_the_file_has_from_elsewhere_or_had_made_for_it_was_not_typed_in(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BORROWED)
    done = run(tmp_path, "train.py")
    assert done.stdout.split() == ["train.Alias", "train.Pair", "train.Made", "train.Slim"], done.stderr
