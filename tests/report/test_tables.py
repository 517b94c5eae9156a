"""Arms side by side: every figure is the result's, failed arms stay in, foreign text does no harm."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from flodl.record.result import Run, failed_result
from flodl.report.arm import Arm, shared_overrides
from flodl.report.compare import compare
from flodl.report.markdown import comparison_markdown
from flodl.report.tables import print_comparison
from tests.record.figures import run_result
from tests.report.arms import arm

DONE = Arm(name="0", overrides=("elche=cpu_async", "x=1"), status="done", folder="0", result=run_result())
SKIPPED = Arm(name="1", overrides=("elche=nccl_sync", "x=1"), status="skipped", reason="NCCL needs GPUs", folder="1")
NEVER = Arm(name="2", overrides=("elche=cpu_sync", "x=1"), status="interrupted", reason="not started", attempts=0)


def markdown_of(*arms: Arm) -> str:
    return comparison_markdown(compare(arms))


def printed(*arms: Arm, width: int = 120) -> str:
    out = io.StringIO()
    print_comparison(compare(arms), Console(file=out, width=width, markup=False, highlight=False, emoji=False))
    return out.getvalue()


def cells(markdown: str, row: int) -> list[str]:
    line = [line for line in markdown.splitlines() if line.startswith("|")][row]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_row_holds_the_figures_of_its_result() -> None:
    result = run_result()
    markdown = markdown_of(DONE, SKIPPED, NEVER)
    row = dict(zip(cells(markdown, 0), cells(markdown, 2), strict=True))
    assert row["overrides"] == "`elche=cpu_async`"
    assert row["mode"].replace("\\", "") == result.mode
    assert row["samples/s"] == f"{result.samples_per_second:,.0f}"
    assert row["utilisation"] == f"{result.utilisation:.3f}".rstrip("0")
    assert row["rounds"] == f"{result.rounds}"
    assert row["anchor"] == f"{result.anchor}"
    assert row["wall s"] == f"{result.wall_seconds:.0f}"
    assert row["s to target"] == row["loss/s"] == "-", "without epochs there are none"
    for name, value in result.eval.items():
        assert f"{name} {value:.4g}" in row["eval"]


def test_arms_without_a_result_stay_in_with_their_reason() -> None:
    markdown = markdown_of(DONE, SKIPPED, NEVER)
    assert "# Comparison of 3 arms" in markdown
    assert cells(markdown, 3)[:3] == ["1", "`elche=nccl_sync`", "skipped"]
    assert cells(markdown, 3)[-1] == "NCCL needs GPUs"
    assert cells(markdown, 4)[2] == "interrupted"


def test_a_run_that_trained_nothing_shows_no_figures() -> None:
    failed = failed_result(ValueError("no"), Run(mode="cpu_async", average="parameters", world_size=2))
    markdown = markdown_of(Arm(name="0", status="failed", reason="no", result=failed))
    row = dict(zip(cells(markdown, 0), cells(markdown, 2), strict=True))
    assert row["mode"] == "cpu\\_async"
    assert row["samples/s"] == row["rounds"] == row["eval"] == "-"
    assert "No arm ended well" in markdown


def test_what_all_arms_share_is_said_once() -> None:
    assert shared_overrides([DONE, SKIPPED]) == ("x=1",)
    assert shared_overrides([DONE]) == (), "of a single arm they are its name"
    assert "All of them: `x=1`" in markdown_of(DONE, SKIPPED)
    assert "`x=1`" not in markdown_of(DONE, SKIPPED).split("| arm")[1]
    assert "all arms: x=1" in printed(DONE, SKIPPED)


def test_seeds_have_a_row_of_means_and_the_winner_a_sentence() -> None:
    arms = [arm("0", "cpu_async", 0, [2.0, 1.0], [1.0, 0.5]), arm("1", "cpu_async", 1, [2.0, 1.2], [1.0, 0.7])]
    text = printed(*arms, arm("2", "cpu_sync", 0, [2.0, 1.0], [1.1, 0.6]), width=160)
    assert "1.1 ± 0.14" in text, "mean and standard deviation of the training loss"
    assert "2 of 2" in text
    assert "is best by" in text
    assert "try next" in text
    suggested = "\npython -m flodl -m elche=cpu_async x=1 trainer.seed="
    assert suggested in printed(*arms, arm("2", "cpu_sync", 0, [2.0, 1.0], [1.1, 0.6]), width=40), "on one line"
    assert f"`{suggested.strip()}" in markdown_of(*arms, arm("2", "cpu_sync", 0, [2.0, 1.0], [1.1, 0.6]))


def test_foreign_text_breaks_neither_table() -> None:
    evil = Arm(name="0", overrides=("name=a|b`c``d\x1b[31m",), status="failed", reason="x | y\n[red]z\x1b]0;t\x07 <b>")
    markdown = markdown_of(evil)
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert rows[2].count(" | ") == rows[0].count(" | ")
    assert "``` name=a\\|b`c``d ```" in rows[2]
    assert "x \\| y" in rows[2]
    named = msgspec.structs.replace(arm("0", "cpu_async", 0, [2.0, 1.0], [1.0, 0.5]), overrides=("name=a|b", "x=1"))
    other = msgspec.structs.replace(named, name="1", overrides=("name=a|b", "x=2"))
    assert "All of them: `name=a|b`" in markdown_of(named, other), "outside of tables a bar is a bar"
    text = printed(evil)
    assert "[red]z" in text
    assert "\x1b" not in text + markdown


def test_no_figure_is_cut_off_on_a_narrow_terminal() -> None:
    text = printed(DONE, SKIPPED, NEVER, width=80)
    assert "…" not in text
    assert "not started" in text
    assert max(len(line) for line in text.splitlines() if " " in line and ": " not in line) <= 80
