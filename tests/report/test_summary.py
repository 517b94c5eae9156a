"""The end of a run says what each rank did and what balancing gained, in figures that can be checked by hand."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from flodl.record.result import failed_result
from flodl.report.gain import gain
from flodl.report.summary import outcome_lines, print_summary
from tests.record.figures import rank_totals, run, run_result


def printed(width: int = 100, **changes: object) -> list[str]:
    out = io.StringIO()
    print_summary(run_result(**changes), Console(file=out, width=width, markup=False, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_gain_is_the_achieved_rate_over_equal_steps_at_the_slowest_ranks_pace() -> None:
    found = gain(run_result())
    assert found is not None
    assert found.slowest == 1
    assert found.lockstep == pytest.approx(2 * 1984 / 9.6)
    assert found.ratio == pytest.approx(704 / (2 * 1984 / 9.6))


def test_on_equal_ranks_the_gain_never_flatters() -> None:
    found = gain(run_result(ranks=(rank_totals(0, 3520, 9.5), rank_totals(1, 3520, 9.5))))
    assert found is not None
    assert found.ratio == pytest.approx(0.95)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": (rank_totals(0, 5056, 9.5),)},
        {"ranks": (rank_totals(0, 5056, 9.5), rank_totals(1, 0, 0.0))},
        {"dead_ranks": (1,)},
        {"restarts": {1: 1}},
    ],
)
def test_without_two_ranks_that_trained_to_the_end_no_gain_is_claimed(changes: dict[str, object]) -> None:
    assert gain(run_result(**changes)) is None


def test_the_table_fits_80_columns_and_holds_each_ranks_parts() -> None:
    lines = printed(80)
    assert lines[0].split() == ["rank", "batches", "share", "samples/s", "pace", "compute", "data", "average", "idle"]
    assert lines[1].split() == ["0", "localhost:cpu", "79", "71.8%", "506", "532", "95.0%", "1.0%", "2.0%", "2.0%"]
    assert lines[2].split() == ["1", "localhost:cpu", "31", "28.2%", "198", "207", "96.0%", "1.0%", "2.0%", "1.0%"]


def test_who_waits_beside_training_is_shown_as_parts_of_that() -> None:
    idle = msgspec.structs.replace(rank_totals(1, 1984, 9.6), idle_seconds=190.0)
    lines = printed(80, ranks=(rank_totals(0, 5056, 9.5), idle))
    assert [line.split()[-1] for line in lines[1:3]] == ["0.1%", "95.0%"], "a callback stands outside the wall"


def test_on_a_narrow_terminal_no_figure_is_cut_off() -> None:
    text = "\n".join(printed(64))
    assert "…" not in text
    assert "71.8%" in text


def test_the_outcome_comes_first_below_the_table() -> None:
    lines = printed(160)
    assert lines[3] == "done: all 4 epochs done"
    assert lines[5].startswith("utilisation 0.960: 704 of the 733 samples/s")
    assert lines[7] == (
        "ElChe: 1.70 x lockstep: 704 samples/s, where equal steps at rank 1's pace would give 413 at best"
    )
    assert lines[8] == "train loss 0.21, accuracy 0.9694, eval loss 0.1"


def test_a_dead_rank_is_marked() -> None:
    assert any("1 localhost:cpu (dead)" in line for line in printed(dead_ranks=(1,)))


def test_restarts_are_counted_beside_the_rank() -> None:
    assert any("1 localhost:cpu (restarted once)" in line for line in printed(160, restarts={1: 1}))
    gone = printed(160, dead_ranks=(1,), restarts={1: 3})
    assert any("1 localhost:cpu (dead, restarted 3 times)" in line for line in gone)


def test_a_run_that_never_began_is_one_line() -> None:
    assert outcome_lines(failed_result(OSError("the disk is full"), run())) == ["failed: the disk is full"]


def test_hostile_text_is_printed_as_it_is() -> None:
    out = io.StringIO()
    print_summary(failed_result(OSError("[red]x[/red] :smile:"), run()), Console(file=out))
    assert "[red]x[/red] :smile:" in out.getvalue()
