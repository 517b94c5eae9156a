"""One stage per module: its agents are met once and end with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Where runs with faults take place."""
    made = Stage(tmp_path_factory.mktemp("stage"))
    yield made
    made.close()
