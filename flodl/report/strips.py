"""Each rank's timeline: strips of stacked parts of its time, one below the other, over the seconds of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flodl.report.history import ACTIVITIES, Strip, Trace
from flodl.report.markup import Node, node
from flodl.report.scale import scale_of

__all__ = ["activity_legend", "strips_figure"]

WIDTH, LEFT, RIGHT = 390, 6, 380
ROW, BAND, TOP = 42, 22, 8
MANY = 16  # ranks that are drawn
LONGEST = 28  # letters of a place


def strips_figure(title: str, trace: Trace) -> Node:
    """A figure; of very many ranks the first are drawn, and that is said."""
    strips = trace.strips[:MANY]
    bottom = TOP + ROW * len(strips)
    scale = scale_of([0.0, trace.seconds], LEFT, RIGHT)
    ticks = scale.ticks
    axis = [node("text", scale.label(tick), x=round(scale.at(tick), 1), y=bottom + 18,
                 class_="tick " + ("start" if tick == ticks[0] else "end" if scale.at(tick) > RIGHT - 20 else "middle"))
            for tick in ticks]  # fmt: skip
    end = scale.at(trace.seconds)
    bands = [part for row, strip in enumerate(strips) for part in _strip(strip, TOP + ROW * row, end)]
    said = "; ".join(f"rank {strip.rank}: {_said(strip)}" for strip in strips)
    more = f" The first {MANY} of {len(trace.strips)} ranks." if len(trace.strips) > MANY else ""
    svg = node(
        "svg",
        *bands,
        node("line", x1=LEFT, x2=RIGHT, y1=bottom + 2, y2=bottom + 2, class_="rule"),
        *axis,
        node("text", "seconds since the first window", x=(LEFT + RIGHT) / 2, y=bottom + 36, class_="axis middle"),
        viewBox=f"0 0 {WIDTH} {bottom + 42}",
        class_="strips",
        role="img",
        aria_label=f"{title}. {said}.{more}",
    )
    return node("figure", node("figcaption", title + more), svg)


def activity_legend() -> Node:
    """Colour and name of each activity."""
    entries = [node("li", node("span", class_=f"swatch a{i}"), name) for i, name in enumerate(ACTIVITIES)]
    return node("ul", *entries, node("li", "blank: not there"), class_="legend")


def _strip(strip: Strip, top: float, end: float) -> Iterator[Node]:
    place = strip.place if len(strip.place) <= LONGEST else strip.place[: LONGEST - 3] + "..."
    yield node("text", f"rank {strip.rank}  {place}", x=LEFT, y=top + 10, class_="tick")
    yield node("text", _most(strip), x=RIGHT, y=top + 10, class_="axis end")
    if not strip.stretches:
        return
    width = (end - LEFT) / len(strip.stretches)
    below = [0.0] * len(strip.stretches)
    for i in range(len(ACTIVITIES)):
        above = [min(1.0, low + parts[i]) for low, parts in zip(below, strip.stretches, strict=True)]
        if any(parts[i] > 0.0 for parts in strip.stretches):
            yield node("path", d=_area(below, above, width, top + 15), class_=f"a{i}")
        below = above


def _area(below: Sequence[float], above: Sequence[float], width: float, top: float) -> str:
    """A stacked layer as steps: along its upper edge, and back along its lower one. Equal neighbours are one step."""
    upper = [f"{LEFT + i * width:.1f} {top + BAND * (1 - y):.1f}" for i, y in _edges(above)]
    lower = [f"{LEFT + i * width:.1f} {top + BAND * (1 - y):.1f}" for i, y in reversed(_edges(below))]
    return "M" + "L".join(upper + lower) + "Z"


def _edges(heights: Sequence[float]) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for i, height in enumerate(heights):
        if i == 0 or abs(height - heights[i - 1]) > 1e-3:
            found += [(i, heights[i - 1])] if i else []
            found.append((i, height))
    return [*found, (len(heights), heights[-1])]


def _means(strip: Strip) -> list[float]:
    """Each activity's part of the whole run."""
    count = max(1, len(strip.stretches))
    return [sum(parts[i] for parts in strip.stretches) / count for i in range(len(ACTIVITIES))]


def _said(strip: Strip) -> str:
    """All parts: compute 80%, data wait 0%, ..."""
    return ", ".join(f"{name} {mean:.0%}" for name, mean in zip(ACTIVITIES, _means(strip), strict=True))


def _most(strip: Strip) -> str:
    """Compute, and of the others the largest."""
    compute, *others = _means(strip)
    most = max(range(len(others)), key=lambda i: others[i])
    name = ACTIVITIES[most + 1].partition(",")[0]
    return f"{ACTIVITIES[0]} {compute:.0%}, {name} {others[most]:.0%}"
