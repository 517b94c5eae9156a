"""A private sshd per module, and fresh ones where a test bends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launch.sshd import Sshd, why_not


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """make_sshd(*lines of its configuration) starts one more."""
    if why_not():
        pytest.skip(why_not())
    made: list[Sshd] = []

    def make(*options: str) -> Sshd:
        folder = tmp_path / f"sshd{len(made)}"
        folder.mkdir()
        made.append(Sshd(folder, options))
        return made[-1].start()

    yield make
    for sshd in made:
        sshd.stop()


@pytest.fixture
def sshd(make_sshd: Callable[..., Sshd]) -> Sshd:
    return make_sshd()
