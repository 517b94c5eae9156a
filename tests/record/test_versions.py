"""A run says with what it was made, in a checkout, with changes, and outside git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flodl.record.versions import versions


@pytest.fixture
def checkout(runs: Path) -> Path:
    """A project under git with one file."""
    (runs / "model.py").write_text("layers = 3\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(runs), *arguments], check=True, capture_output=True)
    return runs


def test_a_clean_checkout_has_a_commit_and_no_diff(checkout: Path) -> None:
    found = versions(checkout)
    assert len(found.git_commit) == 40
    assert found.git_diff_sha256 == ""


def test_a_change_gives_a_digest_that_is_the_same_for_the_same_change(checkout: Path) -> None:
    (checkout / "model.py").write_text("layers = 4\n")
    first = versions(checkout).git_diff_sha256
    (checkout / "model.py").write_text("layers = 5\n")
    second = versions(checkout).git_diff_sha256
    (checkout / "model.py").write_text("layers = 4\n")
    assert len(first) == 64
    assert first != second
    assert versions(checkout).git_diff_sha256 == first


def test_outside_git_the_packages_are_still_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(runs.parent))
    found = versions(runs)
    assert found.git_commit == ""
    assert {"msgspec", "numpy", "torch"} <= set(found.packages)


def test_without_git_on_the_path_nothing_is_raised(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert versions(checkout).git_commit == ""
