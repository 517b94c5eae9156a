"""A page for people: one file that holds everything, fetches nothing, and reads well in light and dark.

The policy in its head forbids every fetch, whatever the text of a run may hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from flodl.record.text import clean
from flodl.report.chart import Chart, drawn, group_class, known
from flodl.report.markup import Node, data_script, node, raw, written

__all__ = ["Column", "badge", "chart_section", "codes", "document", "group_legend", "section", "table"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
HERE = Path(__file__).parent
Cell = Node | str


class Column(msgspec.Struct, frozen=True):
    """title, and below it the unit."""

    title: str
    unit: str = ""
    is_number: bool = True


def document(title: str, body: Iterable[Node | None], charts: Sequence[Chart]) -> str:
    """The whole page. charts: those in it, whose values the script reads out."""
    curves = {
        chart.key: {
            "x": chart.x,
            "lines": [
                {
                    "name": clean(line.name),
                    "group": line.group,
                    "faint": line.is_faint,
                    "points": list(known(line.points)),
                }
                for line in chart.lines
            ],
        }
        for chart in charts
    }
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", http_equiv="Content-Security-Policy", content=POLICY),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("title", title),
        node("link", rel="icon", href="data:,"),
        raw("style", _file("page.css")),
    )
    foot = node("footer", "Made by flodl from the run folders alone; nothing in this page is fetched from elsewhere.")
    inside = node("body", node("main", *body), foot, data_script("curves", msgspec.json.encode(curves)),
                  raw("script", _file("page.js")))  # fmt: skip
    return written(node("html", head, inside, lang="en"))


def section(title: str, *content: Node | None) -> Node:
    """A part of the page."""
    return node("section", node("h2", title), *content)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Node:
    """A table whose first cells head their rows. It scrolls by itself where it is wider than the page."""
    head = node("tr", *[
        node("th", column.title, node("span", column.unit, class_="soft") if column.unit else None,
             scope="col", class_="number" if column.is_number else None)
        for column in columns
    ])  # fmt: skip
    body = [
        node("tr", *[_cell(value, column, is_head=i == 0) for i, (value, column) in
                     enumerate(zip(row, columns, strict=True))])
        for row in rows
    ]  # fmt: skip
    made = node("table", node("caption", caption), node("thead", head), node("tbody", *body))
    return node("div", made, class_="table", role="region", aria_label=caption, tabindex="0")


def badge(status: str) -> Node:
    """How an arm ended, coloured; the word says it."""
    return node("span", status, class_=status)


def codes(texts: Iterable[str]) -> Node:
    """What can be typed."""
    parts: list[Node | str] = []
    for text in texts:
        parts += [node("code", text), " "]
    return node("span", *parts)


def group_legend(names: Mapping[int, str]) -> Node:
    """A button per group: its colour and dashes, and whether its lines are shown. names: by the groups' numbers."""
    keys = [
        node("button", node("svg", node("path", d="M0 6L32 6"), viewBox="0 0 32 12", class_=f"key {group_class(i)}",
                            aria_hidden="true"), name, type="button", data_group=i, aria_pressed="true", disabled="")
        for i, name in names.items()
    ]  # fmt: skip
    return node("ul", *[node("li", key) for key in keys], class_="legend")


def chart_section(charts: Sequence[Chart], legend: Node | None, note: str = "") -> Node | None:
    """All figures of lines."""
    if not charts:
        return None
    said = node("p", note, class_="soft") if note else None
    return section("Curves", said, legend, node("div", *[drawn(chart) for chart in charts], class_="figures"))


def _cell(value: Cell, column: Column, *, is_head: bool) -> Node:
    if isinstance(value, Node) and value.tag == "td":
        return value
    if is_head:
        return node("th", value, scope="row")
    return node("td", value, class_="number" if column.is_number else None)


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
