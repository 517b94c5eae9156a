"""A figure of lines as inline SVG: axes with units, a line per arm, the mean of a group in bold, colours by class.

Colours, and what light and dark mean for them, are the style sheet's. A group beyond the eighth has a colour that there
was already and dashes that there were not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from flodl.report.markup import Node, node
from flodl.report.scale import Scale, scale_of

__all__ = ["COLOURS", "Chart", "Line", "Point", "drawn", "group_class", "known"]

COLOURS = 8
WIDTH, HEIGHT = 390, 282
LEFT, RIGHT, TOP, BOTTOM = 54, 372, 32, 234
DOTTED = 25  # points of a line that are still shown one by one
Point = tuple[float, float | None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """name: what the reader is told. group: by which it has its colour. y None: a gap."""

    name: str
    group: int
    points: tuple[Point, ...]
    is_faint: bool = False


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. key: its id in the page. said: what it shows."""

    key: str
    title: str
    x: str
    y: str
    said: str
    lines: tuple[Line, ...]
    log: bool = False
    whole: bool = False  # x is a count
    whole_y: bool = False

    @property
    def is_empty(self) -> bool:
        """Nothing can be drawn."""
        return not any(True for line in self.lines for _ in known(line.points))


class _Area(NamedTuple):
    x: Scale
    y: Scale


def drawn(chart: Chart) -> Node:
    """The figure with its caption."""
    area = _area(chart)
    y_title = chart.y + (" (log scale)" if area.y.is_log else "")
    svg = node(
        "svg",
        *_grid(area, chart),
        node("text", chart.x, x=(LEFT + RIGHT) / 2, y=HEIGHT - 8, class_="axis middle"),
        node("text", y_title, x=4, y=TOP - 18, class_="axis"),
        *[_line(line, area) for line in sorted(chart.lines, key=lambda line: not line.is_faint)],
        node("line", x1=LEFT, x2=LEFT, y1=TOP, y2=BOTTOM, class_="cursor", visibility="hidden"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        role="img",
        tabindex="0",
        aria_label=f"{chart.title}. {chart.said} Arrow keys read the values.",
        data_chart=chart.key,
        data_x=f"{area.x.low} {area.x.high} {LEFT} {RIGHT}",
    )
    caption = node("figcaption", chart.title, node("small", chart.said, class_="soft"))
    return node("figure", caption, svg, node("div", class_="tip", role="status", hidden=""))


def group_class(group: int) -> str:
    """The classes that colour and dash a group's lines."""
    return f"c{group % COLOURS} d{group // COLOURS % 4}"


def known(points: Sequence[Point]) -> Iterator[tuple[float, float]]:
    """The points that are there."""
    for x, y in points:
        if y is not None and math.isfinite(x) and math.isfinite(y):
            yield x, y


def _area(chart: Chart) -> _Area:
    xs = [x for line in chart.lines for x, _ in known(line.points)]
    ys = [y for line in chart.lines for _, y in known(line.points)]
    positive = [y for y in ys if y > 0.0]
    is_log = chart.log and bool(positive) and max(positive) / min(positive) > 50.0
    y = scale_of(positive if is_log else ys, BOTTOM, TOP, log=chart.log)
    return _Area(scale_of(xs, LEFT, RIGHT, from_zero=not chart.whole), y)


def _grid(area: _Area, chart: Chart) -> Iterator[Node]:
    for tick, text in _ticks(area.x, whole=chart.whole):
        x = round(area.x.at(tick), 1)
        yield node("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 5, class_="rule")
        yield node("text", text, x=x, y=BOTTOM + 19, class_="tick middle")
    for tick, text in _ticks(area.y, whole=chart.whole_y):
        y = round(area.y.at(tick), 1)
        yield node("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield node("text", text, x=LEFT - 7, y=y + 4, class_="tick end")
    yield node("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="rule")


def _ticks(scale: Scale, *, whole: bool) -> list[tuple[float, str]]:
    """Values and their texts; of a count whole ones."""
    if whole:
        return [(tick, f"{tick:,.0f}") for tick in scale.ticks if abs(tick - round(tick)) < 1e-9]
    return [(tick, scale.label(tick)) for tick in scale.ticks]


def _line(line: Line, area: _Area) -> Node:
    """One path, torn where a value is missing; few points are dots as well."""
    classes = f"{group_class(line.group)}{' faint' if line.is_faint else ''}"
    steps: list[str] = []
    dots: list[Node] = []
    pen = "M"
    for x, y in line.points:
        if y is None or not math.isfinite(y) or (area.y.is_log and y <= 0.0):
            pen = "M"
            continue
        here = f"{area.x.at(x):.1f} {area.y.at(y):.1f}"
        steps.append(f"{pen}{here}")
        pen = "L"
        if len(line.points) <= DOTTED and not line.is_faint:
            left, _, top = here.partition(" ")
            dots.append(node("circle", cx=left, cy=top, r="2.6"))
    path = node("path", d="".join(steps)) if steps else None
    return node("g", path, *dots, class_=classes, data_group=line.group)
