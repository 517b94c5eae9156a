"""One reading of conf/ for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conf.composing import shipped


@pytest.fixture(scope="module")
def composing() -> Iterator[None]:
    """For modules that compose without a command line; `flodl.app.run` composes by itself."""
    with shipped():
        yield
