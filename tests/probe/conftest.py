"""A fleet of agents on this machine, kept for a module: they are met once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flodl.engine.fleet import AgentFleet


@pytest.fixture(scope="module")
def fleet() -> Iterator[AgentFleet]:
    agents = AgentFleet()
    yield agents
    agents.close(0.0)
