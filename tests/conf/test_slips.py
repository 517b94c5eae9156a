"""A slip in a file of the user's own: which file, which line, what is wrong there. No traceback, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl.__main__ import main
from flodl.errors import ConfigError
from flodl.explain import explain

SLIPS = {
    "a wrong indent": (
        b"a:\n  b: 1\n   c: 3\n",
        "line 3: mapping values are not allowed here; look at the indentation",
    ),
    "a tab": (b"a:\n\tb: 1\n", "line 2: found character '\\t' that cannot start any token; indent with spaces"),
    "a key twice": (b"a: 1\nb: {c: 1}\nb: 2\n", "line 3: found duplicate key b; keep one of the two"),
    "a byte of Latin-1": (b"a: 1\nb: caf\xe9\n", "line 2: is no text in UTF-8 (byte 0xe9); save the file as text"),
    "no text at all": (bytes(range(255, 0, -1)), "line 1: is no text in UTF-8 (byte 0xff)"),
    "a NUL": (b"a: 1\nb: \0c\n", "line 2: holds a character that no text has (0x0)"),
    "two documents": (b"a: 1\n---\nb: 2\n", "line 2: but found another document; leave out the line ---"),
    "a tag": (b"a: !!python/object:os.system 3\n", "line 1: could not determine a constructor"),
    "an open interpolation": (b"a: 1\nb: ${c\n", "line 2: a ${...} cannot be read"),
    "a block in itself": (b"a: &a [*a]\n", "a block contains itself"),
    "defaults that are no list": (b"a: 1\ndefaults: 3\n", "line 2: defaults must be a list"),
    "a header of too many words": (b"# @package two words\na: 1\n", "line 1: a header cannot be read"),
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    for group in ("cluster", "model", "experiment"):
        (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / "cluster" / "another.yaml").write_bytes(b"\xff no text either\n")
    return tmp_path / "conf"


@pytest.mark.parametrize("case", SLIPS)
def test_it_is_told_by_file_and_line(case: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = SLIPS[case]
    (own / "cluster" / "mine.yaml").write_bytes(content)
    assert main(["cluster=mine", "launch.dry_run=true"]) == 2
    head, line = capsys.readouterr().err.splitlines()
    assert head == "flodl: the configuration is wrong:"
    assert line.strip().startswith("conf/cluster/mine.yaml")
    assert words in line


@pytest.mark.parametrize("typed", ["model=mine", "+experiment=mine"])
def test_in_every_group_and_in_a_sweep(typed: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = typed.lstrip("+").partition("=")[0]
    (own / group / "mine.yaml").write_text("a:\n\tb: 1\n")
    for more in ([], ["-m", "trainer.seed=1,2"]):
        assert main([*more, typed, "launch.dry_run=true"]) == 2
        said = capsys.readouterr().err
        assert f"conf/{group}/mine.yaml, line 2:" in said
        assert "Traceback" not in said


def test_a_file_that_may_not_be_read_is_no_missing_run_folder() -> None:
    found = explain(PermissionError(13, "Permission denied", "conf/cluster/mine.yaml"), [])
    assert isinstance(found, ConfigError)
    assert str(found) == "conf/cluster/mine.yaml: cannot be read: Permission denied"


def test_an_error_of_ours_stays_one(own: Path) -> None:
    assert explain(ValueError("something else"), []) is None
    assert explain(RecursionError("ours"), []) is None
