"""A person sees the run go on: a bar on a terminal, plain lines in a pipe, and never somebody else's markup."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console

from flodl.decide.callbacks import Callbacks
from flodl.decide.messages import (
    Alert,
    CallbackResult,
    EpochEnded,
    FormGroup,
    RankDied,
    RankFailed,
    RankReady,
    StopRequested,
)
from flodl.decide.view import View
from flodl.report.bar import Bar, duration
from flodl.report.news import epoch_line, news, shares_line
from flodl.report.terminal import LiveTerminal, PlainTerminal, terminal
from tests.record.figures import STORY, epoch, window_done

TRAINING = View(
    activity="training",
    epoch=3,
    num_epochs=10,
    progress=0.35,
    rounds=12,
    anchor=12,
    phase="stable",
    samples_done=6272,
    samples_per_second=702.4,
    loss=0.4123,
    shares={0: 0.714, 1: 0.286},
    eval={},
    dead_ranks=(),
)


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def console(out: io.StringIO, *, watched: bool) -> Console:
    return Console(
        file=out,
        width=100,
        force_terminal=watched,
        force_interactive=watched,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
    )


def changed(**changes: object) -> Callable[[], View]:
    return lambda: msgspec.structs.replace(TRAINING, **changes)


def test_an_epoch_is_one_line_counted_from_one() -> None:
    assert epoch_line(epoch(2, eval={"accuracy": 0.95, "loss": 0.2}), 10) == (
        "epoch  3/10  loss 0.2500  717 samples/s  anchor 10 stable  shares r0 71% r1 29%  accuracy 0.95  eval loss 0.2"
    )


def test_the_everyday_is_no_news() -> None:
    assert news(*STORY[1], TRAINING) == []
    assert news(*STORY[2], TRAINING) == []


def test_what_matters_is_said_in_order() -> None:
    died = RankDied(at=1.0, rank=1, cause="SIGKILL")
    alert = Alert(text="its 8 batches are dealt again", rank=1, reason="death")
    ended = EpochEnded(metrics=epoch(0), reason="done")
    texts = [line.text for line in news(died, [alert, ended], TRAINING)]
    assert texts[:2] == ["rank 1 died: SIGKILL", "its 8 batches are dealt again"]
    assert texts[2].startswith("epoch  1/10")


NAME = "rank 1 (cpu of here)"


def form(reason: str, *ranks: int) -> FormGroup:
    return FormGroup(to=ranks, generation=2, ranks=ranks, reason=reason)


def test_a_death_is_said_once_with_all_that_is_known_of_it() -> None:
    died = RankDied(at=1.0, rank=1, cause="was ended by SIGKILL")
    alert = Alert(text=f"{NAME} died: was ended by SIGKILL; it is restarted in 1 s", rank=1, reason="death")
    told = news(died, [alert, form(f"{NAME} is gone; 2 ranks go on", 0, 2)], TRAINING)
    assert [line.text for line in told] == [alert.text, f"going on with ranks 0, 2: {NAME} is gone; 2 ranks go on"]
    assert told[0].kind == "bad"
    failed = RankFailed(at=1.0, rank=1, kind="step", message="ValueError: x", trace="Traceback\nValueError: x")
    alert = Alert(text=f"{NAME} died: ValueError: x", rank=1, reason="death")
    assert [line.text for line in news(failed, [alert], TRAINING)] == [failed.trace, alert.text]
    known = msgspec.structs.replace(failed, kind="contact", trace=failed.message)
    assert [line.text for line in news(known, [alert], TRAINING)] == [alert.text]
    assert [line.text for line in news(known, (), TRAINING)] == ["rank 1 failed: ValueError: x"]
    assert news(msgspec.structs.replace(died, cause="ended with exit code 1 and no goodbye"), (), TRAINING) == []


def test_who_goes_on_alone_and_who_only_says_what_it_holds_goes_on_with_nobody() -> None:
    died = RankDied(at=1.0, rank=1, cause="was ended by SIGKILL")
    ends = "the run ends (max_failure_exceeded): each says which round it holds"
    texts = [line.text for line in news(died, [form(ends, 0), form(ends, 2)], TRAINING)]
    assert texts == ["rank 1 died: was ended by SIGKILL", ends]
    alone = f"{NAME} is gone; rank 0 (cpu of here) goes on alone"
    assert [line.text for line in news(died, [form(alone, 0)], TRAINING)][1:] == [alone]


def test_evaluations_are_said_and_those_that_failed_once() -> None:
    good = CallbackResult(name="eval", ok=True, values={"accuracy": 0.95}, epoch=2)
    bad = CallbackResult(name="eval", ok=False, error="ValueError: no labels", epoch=3)
    assert [n.text for n in news(window_done(0, 4, good), (), TRAINING)] == ["epoch 3: accuracy 0.95"]
    told = Callbacks().take(bad)
    assert told == "the evaluation of epoch 4 failed: ValueError: no labels"
    alert = Alert(text=f"rank 0 (cpu of here): {told}", rank=0, reason="training goes on")
    assert [n.text for n in news(window_done(0, 4, bad), [alert], TRAINING)] == [alert.text]
    assert "stopping" in news(StopRequested(at=1.0, reason="SIGINT"), (), TRAINING)[0].text


def test_many_ranks_show_eight_and_the_range_of_the_others() -> None:
    assert shares_line({0: 0.714, 1: 0.286}) == "r0 71% r1 29%"
    line = shares_line(dict.fromkeys(range(64), 1 / 64))
    assert line.endswith("r7 2% and 56 more, 1.6% to 1.6%")


def test_the_time_left_follows_from_the_progress_since_it_was_first_seen() -> None:
    clock = Clock()
    bar = Bar(clock)
    assert "left" not in bar.line(changed(progress=0.5)())
    clock.now += 10
    assert bar.line(changed(progress=0.6)()) == (
        " 60%  epoch 4/10  702 samples/s  loss 0.412  anchor 12 stable  0:40 left"
    )


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (7, "0:07"), (725, "12:05"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_flood_in_one_line_is_cut() -> None:
    out = io.StringIO()
    PlainTerminal(changed(), console(out, watched=False)).foreign("[node-a:cpu r0]", "y" * 20_000)
    assert out.getvalue() == "[node-a:cpu r0] " + "y" * 500 + " ...\n"


def test_in_a_pipe_lines_are_whole_and_a_sign_of_life_comes_every_30_seconds() -> None:
    out, clock = io.StringIO(), Clock()
    with PlainTerminal(changed(), console(out, watched=False), clock) as plain:
        plain.foreign("[node-a:cuda:0 r1]", "UserWarning: [bold]x[/bold] :smile: " + "y" * 150)
        plain.tick()
        clock.now += 31
        plain.tick()
        plain.tick()
    lines = out.getvalue().splitlines()
    assert lines[0] == "[node-a:cuda:0 r1] UserWarning: [bold]x[/bold] :smile: " + "y" * 150
    assert lines[1:] == [" 35%  epoch 4/10  702 samples/s  loss 0.412  anchor 12 stable"]
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_bar_shows_figures_and_shares_and_goes_away() -> None:
    out, clock = io.StringIO(), Clock()
    with LiveTerminal(changed(), console(out, watched=True), 2, clock) as live:
        live.observe(*STORY[3])
    shown = out.getvalue()
    assert "35%  epoch 4/10  702 samples/s  loss 0.412  anchor 12 stable" in shown
    assert "r0 ━━━━━━━━━━━━━━ 71%  r1 ━━━━━━ 29%" in shown
    assert "epoch  1/10  loss 0.7500" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor is hidden once and given back


def test_before_the_first_window_the_ready_ranks_are_counted() -> None:
    out, clock = io.StringIO(), Clock()
    waiting = changed(activity="gathering", progress=0.0, shares={}, loss=None)
    with LiveTerminal(waiting, console(out, watched=True), 2, clock) as live:
        ready = STORY[0][0]
        assert isinstance(ready, RankReady)
        live.observe(ready, ())
        clock.now += 1
        live.tick()
    assert "waiting for the ranks: 1 of 2 ready" in out.getvalue()


def test_the_screen_is_redrawn_at_most_ten_times_a_second() -> None:
    asked: list[float] = []
    clock = Clock()

    def view() -> View:
        asked.append(clock.now)
        return TRAINING

    with LiveTerminal(view, console(io.StringIO(), watched=True), 2, clock) as live:
        for _ in range(100):
            clock.now += 0.01
            live.tick()
    assert 9 <= len(asked) <= 12


@pytest.mark.parametrize(
    ("watched", "ci", "kind"),
    [(True, "", LiveTerminal), (True, "true", PlainTerminal), (False, "", PlainTerminal)],
)
def test_the_display_suits_the_console(
    watched: bool, ci: str, kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    assert type(terminal(changed(), console(io.StringIO(), watched=watched), 2)) is kind
