"""The comparison as a page: what is best in one sentence, curves, timelines, every figure of every arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import quote

from flodl.record.folder import RunFolder
from flodl.report.arm import own_overrides
from flodl.report.compare import Comparison, goal_words
from flodl.report.compared import Compared
from flodl.report.confidence import confidence_words
from flodl.report.curves import MOST_ARMS, charts, drawn_arms, thinned
from flodl.report.figures import ABSENT, FIGURES, Figure, shown
from flodl.report.history import Trace
from flodl.report.markup import Node, node
from flodl.report.page import Column, badge, chart_section, codes, document, group_legend, section, table
from flodl.report.strips import activity_legend, strips_figure
from flodl.report.tables import arm_columns, failures, mean_cells

__all__ = ["comparison_page"]

MOST_TIMELINES = 12
MOST_ROWS = 1200


def comparison_page(comparison: Comparison, traces: Mapping[str, Trace]) -> str:
    """traces: what the journals tell, by the arms' names."""
    figures = charts(comparison, traces)
    drawn = {arm.group for arm in drawn_arms(comparison)}
    legend = group_legend({i: group.name for i, group in enumerate(comparison.groups) if group.name in drawn})
    trained = [arm for arm in comparison.arms if arm.has_trained]
    note = f"The first {MOST_ARMS} of {len(trained)} arms." if len(trained) > MOST_ARMS else ""
    body = [
        *_top(comparison),
        _verdicts(comparison),
        chart_section(figures, legend, note),
        _timelines(comparison, traces),
        _groups(comparison),
        _arms(comparison),
        _missed(comparison),
        _epochs(comparison),
    ]
    return document(f"Comparison of {len(comparison.arms)} arms", body, figures)


def _top(comparison: Comparison) -> Iterator[Node]:
    won = any(group.ended_well for group in comparison.groups)
    yield node("h1", f"Comparison of {len(comparison.arms)} arms")
    yield node("p", comparison.conclusion, class_="best" if won else "best none")
    if comparison.suggestion is not None:
        found = comparison.suggestion
        yield node("p", f"Try next, beside what {found.beside} had: ", codes(found.overrides), f"({found.why})")
        for command in found.commands:
            yield node("p", codes([command]))
    if comparison.shared:
        yield node("p", "All arms: ", codes(comparison.shared), class_="soft")


def _verdicts(comparison: Comparison) -> Node | None:
    if len(comparison.groups) < 2 or not comparison.verdicts:
        return None
    columns = [Column("by", is_number=False), Column("best", is_number=False), Column("next best", is_number=False),
               Column("factor", "x"), Column("confidence"), Column("test", is_number=False)]  # fmt: skip
    rows: list[Sequence[Node | str]] = []
    for verdict in comparison.verdicts:
        best = f"{verdict.winner}: {verdict.best}"
        second = f"{verdict.runner_up}: {verdict.next_best}" if verdict.next_best else ABSENT
        evidence = verdict.evidence
        sure = ABSENT if evidence is None or evidence.p is None else confidence_words(evidence.p)
        test = ABSENT if evidence is None else f"{evidence.kind}, {evidence.seeds} seeds"
        test = evidence.why if evidence is not None and evidence.why else test
        times = ABSENT if verdict.factor is None else f"{verdict.factor:.2f}"
        rows.append([verdict.title, best, second, times, sure, test])
    return section("What is best", table("The best arm by each criterion, against the next best", columns, rows))


def _timelines(comparison: Comparison, traces: Mapping[str, Trace]) -> Node | None:
    """The first arm of each group."""
    first = {arm.group: arm for arm in reversed(drawn_arms(comparison)) if arm.name in traces}
    names = [group.name for group in comparison.groups if group.name in first][:MOST_TIMELINES]
    figures = [
        strips_figure(f"{name} (arm {first[name].name})", traces[first[name].name])
        for name in names
        if traces[first[name].name].strips
    ]
    if not figures:
        return None
    note = node("p", "What each rank did, over the seconds of the run: one arm of each kind.", class_="soft")
    return section("Timelines of the ranks", note, activity_legend(), node("div", *figures, class_="figures"))


def _groups(comparison: Comparison) -> Node | None:
    if not any(len(group.arms) > 1 for group in comparison.groups):
        return None
    columns = [Column("arms", is_number=False), Column("ended well"), *_figure_columns(comparison)]
    rows = [[group.name, f"{group.ended_well} of {len(group.arms)}", *mean_cells(group)] for group in comparison.groups]
    return section("Over seeds", table("Mean ± standard deviation over the arms that ended well", columns, rows))


def _arms(comparison: Comparison) -> Node:
    columns = [Column("arm", is_number=False), Column("overrides", is_number=False), Column("status", is_number=False),
               Column("mode", is_number=False), *_figure_columns(comparison)]  # fmt: skip
    best = {figure.name: _best(comparison, figure) for figure in FIGURES}
    rows: list[Sequence[Node | str]] = []
    for arm in comparison.arms:
        cells = [_figure_cell(arm, figure, best[figure.name]) for figure in FIGURES]
        own = codes(own_overrides(arm, comparison.shared))
        rows.append([_arm_name(arm), own, badge(arm.status), arm.mode or ABSENT, *cells])
    goal = "" if comparison.target is None else f" Target: {goal_words(comparison.target)}."
    return section("Every arm", node("p", f"The best value of a column is bold.{goal}", class_="soft"),
                   table("Figures of every arm", columns, rows))  # fmt: skip


def _missed(comparison: Comparison) -> Node | None:
    missed = failures(comparison.arms)
    if not missed:
        return None
    columns = [Column("arm", is_number=False), Column("overrides", is_number=False), Column("status", is_number=False),
               Column("tries"), Column("reason", is_number=False)]  # fmt: skip
    rows = [[arm.name, codes(own_overrides(arm, comparison.shared)), badge(arm.status), f"{arm.attempts}",
             node("td", arm.reason or ABSENT, class_="reason")] for arm in missed]  # fmt: skip
    made = table("Arms without a good end of their own, and why", columns, rows)
    return section("Failed, interrupted, skipped, still running", made)


def _epochs(comparison: Comparison) -> Node | None:
    """The values of the curves, for who reads tables."""
    arms = [arm for arm in drawn_arms(comparison) if arm.epochs]
    if not arms:
        return None
    names = sorted({name for arm in arms for point in arm.epochs for name in point.eval})
    columns = [Column("arm", is_number=False), Column("epoch"), Column("training loss"),
               *[Column(f"evaluated {name}") for name in names], Column("training", "s")]  # fmt: skip
    digits, most = Figure("", "", digits=5), max(10, MOST_ROWS // len(arms))
    rows = [
        [arm.name, f"{p.epoch}", shown(p.loss, digits), *[shown(p.eval.get(name), digits) for name in names],
         shown(p.seconds, digits)]
        for arm in arms for p in thinned(arm.epochs, most)
    ]  # fmt: skip
    caption = f"Of each arm {most} epochs at most, the last one among them"
    return node("details", node("summary", "The epochs in figures"), table(caption, columns, rows))


def _figure_columns(comparison: Comparison) -> list[Column]:
    titles = arm_columns(comparison)
    units = {"s", "1/s", "samples/s", "batches"}
    return [
        Column(figure.title if figure.unit in units or figure.name == "metric_at_end" else title,
               figure.unit if figure.unit in units else "")
        for figure, title in zip(FIGURES, titles, strict=True)
    ]  # fmt: skip


def _figure_cell(arm: Compared, figure: Figure, best: float | None) -> Node:
    value = getattr(arm.figures, figure.name, None)
    is_top = arm.counts and best is not None and value == best
    return node("td", shown(value, figure), class_="number top" if is_top else "number", data_figure=figure.name,
                data_arm=arm.name)  # fmt: skip


def _best(comparison: Comparison, figure: Figure) -> float | None:
    """The best value of a column, where there are several and one way is better."""
    values = [v for arm in comparison.arms if arm.counts and (v := getattr(arm.figures, figure.name)) is not None]
    is_judged = figure.name.startswith("metric_")
    if len(values) < 2 or not (figure.better or is_judged):
        return None
    less = comparison.less if is_judged else figure.better == "less"
    return min(values) if less else max(values)


def _arm_name(arm: Compared) -> Node | str:
    """With a link to the run's own page where that lies beside this one."""
    path = PurePosixPath(arm.folder)
    if not arm.folder or path.is_absolute() or arm.result is None:
        return arm.name
    return node("a", arm.name, href=quote(str(path / RunFolder(arm.folder).report_path.name)))
