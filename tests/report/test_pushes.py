"""How far a push is: each step for a terminal, one line for a log, nothing where nothing was sent."""

from __future__ import annotations

from flodl.ports import PushProgress
from flodl.report.pushes import PushTeller


def state(percent: int, sent: int = 3_000_000, host: str = "a") -> PushProgress:
    return PushProgress(host=host, what="code", sent_bytes=sent, percent=percent, rate="1.0MB/s", left_seconds=7)


def told(*states: tuple[float, PushProgress], is_live: bool) -> list[str]:
    """What is said of states that come at these times."""
    lines: list[str] = []
    clock = 0.0
    teller = PushTeller(lines.append, is_live=is_live, now=lambda: clock)
    for clock, progress in states:  # noqa: B007 - the teller reads it
        teller.tell(progress)
    return lines


def test_off_a_terminal_a_push_is_one_line_when_it_is_done() -> None:
    lines = told(*((0.01 * percent, state(percent)) for percent in (5, 50, 99, 100, 100)), is_live=False)
    assert lines == ["a: code: 3.0 MB, 100% at 1.0MB/s"]


def test_off_a_terminal_a_long_push_has_a_line_every_ten_seconds() -> None:
    lines = told(*((float(second), state(second)) for second in range(36)), is_live=False)
    assert lines == [f"a: code: 3.0 MB, {percent}% at 1.0MB/s, 7 s left" for percent in (10, 20, 30)]


def test_a_terminal_sees_every_tenth_of_each_push() -> None:
    lines = told(*((0.0, state(percent, host=host)) for percent in range(0, 101, 5) for host in "ab"), is_live=True)
    assert len(lines) == 20


def test_a_push_that_sends_nothing_tells_nothing() -> None:
    assert told((0.0, state(0, 0)), (0.1, state(100, 0)), is_live=True) == []
    assert told((0.0, state(0, 0)), (20.0, state(100, 0)), is_live=False) == []
