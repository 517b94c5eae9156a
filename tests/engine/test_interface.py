"""An interface that a host has not is told with the host and with those that it has."""

from __future__ import annotations

import pytest

from flodl.engine.interface import check_interface
from flodl.errors import NotReady


def test_an_interface_that_is_there_is_taken_and_none_needs_no_check() -> None:
    check_interface("a", "lo")
    check_interface("a", None)
    check_interface("a", "eth0:1", ["lo", "eth0"])


@pytest.mark.parametrize("name", ["eth", "eth00", "eth1:1"])
def test_one_that_is_not_there_is_named_with_the_others(name: str) -> None:
    with pytest.raises(NotReady) as refused:
        check_interface("a", name, ["lo", "eth0"])
    assert str(refused.value) == (f"a: nccl_socket_ifname={name}: there is no such network interface; it has lo, eth0")
