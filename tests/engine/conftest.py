"""Tests that leave threads behind (groups, averaging lanes) run in a process of their own: whoever forks after such a
test would copy locks that no thread is left to open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine import rig


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own_process: the test's body runs in a forked process")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Run a marked test in a fork; its failure comes back as text."""
    if pyfuncitem.get_closest_marker("own_process") is None:
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in wanted}
    rig.run_ranks(1, lambda rank: pyfuncitem.obj(**given))
    return True
