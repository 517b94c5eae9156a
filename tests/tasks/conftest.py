"""An empty working folder whose name hurts, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flodl.__main__ import main

__all__ = ["Done", "Flodl"]


class Done(NamedTuple):
    """What a command line ended with."""

    code: int
    out: str
    err: str


Flodl = Callable[..., Done]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "me & my 'project'"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    return folder


@pytest.fixture
def flodl(here: Path, capfd: pytest.CaptureFixture[str]) -> Flodl:
    def typed(*arguments: str) -> Done:
        code = main(arguments)
        shown = capfd.readouterr()
        return Done(code, shown.out, shown.err)

    return typed
