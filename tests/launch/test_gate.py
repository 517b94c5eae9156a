"""Logins at a time: bounded, fewer after a drop, more again after a round without; a dropped one is tried again."""

from __future__ import annotations

import threading

import pytest

from flodl_launch import gate as gate_module
from flodl_launch.gate import DroppedError, Gate, gate_of, persist


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are asked for; none is made."""
    asked: list[float] = []
    monkeypatch.setattr(gate_module.time, "sleep", asked.append)
    return asked


def drop(gate: Gate) -> None:
    with pytest.raises(DroppedError), gate.slot():
        raise DroppedError("closed")


def test_a_drop_halves_the_gate_and_one_login_always_passes() -> None:
    gate, seen = Gate(8), []
    for _ in range(5):
        drop(gate)
        seen.append(gate.limit)
    assert seen == [4, 2, 1, 1, 1]


def test_a_round_without_a_drop_opens_it_by_one_up_to_its_most() -> None:
    gate = Gate(3)
    drop(gate)
    seen = []
    for _ in range(9):
        with gate.slot():
            pass
        seen.append(gate.limit)
    assert seen == [2, 2, 3, 3, 3, 3, 3, 3, 3]


def test_another_failure_is_no_drop() -> None:
    gate = Gate(8)
    with pytest.raises(ValueError, match="wrong key"), gate.slot():
        raise ValueError("wrong key")
    assert gate.limit == 8


def test_no_more_are_under_way_than_the_limit_says() -> None:
    gate, lock, now, most = Gate(3), threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def work() -> None:
        nonlocal now, most
        with gate.slot():
            with lock:
                now += 1
                most = max(most, now)
            together.wait(10)  # only full when three are inside at once
            with lock:
                now -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (most, now) == (3, 0)


def test_a_dropped_login_is_tried_five_times_with_growing_jittered_pauses(pauses: list[float]) -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise DroppedError("closed")

    with pytest.raises(DroppedError):
        persist(Gate(8), attempt)
    assert len(tries) == 5
    assert len(pauses) == 4
    for number, pause in enumerate(pauses):
        assert 0.25 * 2**number <= pause <= 0.75 * 2**number
    assert len({pause / 2**number for number, pause in enumerate(pauses)}) > 1


def test_a_login_that_gets_in_at_the_third_try_is_a_login(pauses: list[float]) -> None:
    left = [DroppedError("a"), DroppedError("b")]

    def attempt() -> str:
        if left:
            raise left.pop()
        return "in"

    assert persist(Gate(8), attempt) == "in"
    assert len(pauses) == 2


def test_a_wrong_key_is_not_tried_again(pauses: list[float]) -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise PermissionError("no")

    with pytest.raises(PermissionError):
        persist(Gate(8), attempt)
    assert (len(tries), pauses) == (1, [])


def test_all_threads_share_one_gate_per_server() -> None:
    assert gate_of("a", 22) is gate_of("a", 22)
    assert gate_of("a", 22) is not gate_of("a", 23)
