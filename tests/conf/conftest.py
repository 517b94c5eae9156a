"""One reading of conf/ for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conf.composing import shipped


@pytest.fixture(scope="module", autouse=True)
def composing() -> Iterator[None]:
    with shipped():
        yield
