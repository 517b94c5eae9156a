"""One run as a page: how it ended, its curves, what each rank did, its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flodl.record.folder import RunFolder
from flodl.record.result import Result
from flodl.report.arm import Arm
from flodl.report.compare import Comparison, compare
from flodl.report.curves import charts, thinned
from flodl.report.figures import ABSENT, Figure, shown
from flodl.report.gather import with_history
from flodl.report.history import Trace, trace
from flodl.report.markup import Node, node
from flodl.report.page import Column, badge, chart_section, document, section, table
from flodl.report.strips import activity_legend, strips_figure
from flodl.report.summary import outcome_lines
from flodl.spec.counting import counted

__all__ = ["run_page"]

VALUE = Figure("", "", digits=5)
MOST_ROWS = 200


def run_page(folder: RunFolder, result: Result) -> str:
    """The page of a run that is over."""
    name = result.name if result.name != "run" else f"{folder.path.parent.name}/{folder.path.name}"
    arm = Arm(name=name, status=result.status, reason=result.reason, folder=str(folder.path), result=result)
    comparison = compare([with_history(arm, folder.path)])
    told = trace(folder)
    figures = charts(comparison, {name: told})
    body = [*_top(name, result), chart_section(figures, None), _timeline(told), _ranks(result),
            *_epochs(comparison), _objections(told), _software(result)]  # fmt: skip
    return document(f"{name}: {result.status}", body, figures)


def _top(name: str, result: Result) -> Iterator[Node]:
    head, *rest = outcome_lines(result)
    sentence, _, details = head.partition("\n")
    yield node("h1", name)
    yield node("p", sentence, class_="best" if result.exit_code == 0 else "best none")
    if details:  # the table of hosts that are not ready
        yield node("pre", details)
    about = (
        f" {counted(result.world_size, 'rank')} on {', '.join(result.hosts)}, {result.mode}, averages {result.average}."
        if result.hosts
        else ""
    )
    yield node("p", badge(result.status), f", exit code {result.exit_code}.{about}", class_="soft")
    for line in rest:
        yield node("p", line)


def _timeline(told: Trace) -> Node | None:
    if not told.strips:
        return None
    figure = strips_figure("What each rank did", told)
    return section("Timeline of the ranks", activity_legend(), node("div", figure, class_="figures"))


def _ranks(result: Result) -> Node | None:
    if not any(rank.batches for rank in result.per_rank):
        return None
    columns = [Column("rank", is_number=False), Column("place", is_number=False), Column("batches"), Column("samples"),
               *[Column(title, "s") for title in ("compute", "data wait", "averaging", "idle")],
               Column("peak memory", "MB")]  # fmt: skip
    rows = [
        [f"{r.rank}{' (dead)' if r.rank in result.dead_ranks else ''}", f"{r.host}:{r.device}", f"{r.batches:,}",
         f"{r.samples:,}", *[shown(v, Figure("", "")) for v in (r.compute_seconds, r.data_wait_seconds,
                                                              r.averaging_seconds, r.idle_seconds)],
         f"{r.peak_memory_bytes / 1e6:,.0f}" if r.peak_memory_bytes else ABSENT]
        for r in result.per_rank
    ]  # fmt: skip
    return section("Ranks", table("What each rank did in the whole run", columns, rows))


def _epochs(comparison: Comparison) -> Iterator[Node]:
    points = comparison.arms[0].epochs
    if not points:
        return
    names = sorted({name for point in points for name in point.eval})
    evals = [Column(f"evaluated {name}") for name in names]
    columns = [Column("epoch", is_number=False), Column("training loss"), *evals, Column("ended at", "s"),
               Column("rounds"), Column("anchor", "batches"), Column("divergence")]  # fmt: skip
    rows: list[Sequence[Node | str]] = [
        [f"{p.epoch}", shown(p.loss, VALUE), *[shown(p.eval.get(name), VALUE) for name in names],
         shown(p.seconds, VALUE), f"{p.rounds}", f"{p.anchor}", shown(p.divergence, Figure("", ""))]
        for p in thinned(points, MOST_ROWS)
    ]  # fmt: skip
    caption = "Every epoch" if len(rows) == len(points) else f"{len(rows)} of {len(points)} epochs"
    yield section("Epochs", table(caption, columns, rows))


def _objections(told: Trace) -> Node | None:
    if not told.objections:
        return None
    columns = [Column("before round", is_number=False), Column("anchor", "batches"), Column("why", is_number=False)]
    shown_ones = told.objections[-MOST_ROWS:]
    rows = [[f"{found.round}", f"{found.anchor}" if found.anchor else ABSENT, found.text] for found in shown_ones]
    caption = "What guard and meta-controller had against the anchor"
    if len(shown_ones) < len(told.objections):
        caption += f": the last {len(shown_ones)} of {len(told.objections)} times"
    return section("Guard and meta-controller", table(caption, columns, rows))


def _software(result: Result) -> Node:
    found = result.versions
    told = {"Python": found.python, **found.packages, "commit": found.git_commit[:12], "driver": found.driver}
    text = ", ".join(f"{name} {version}" for name, version in told.items() if version)
    return node("p", f"{found.platform}. {text}.", class_="soft")
