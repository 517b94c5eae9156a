"""Which lines a page shows: loss and evaluation against epochs and seconds, anchor and divergence against rounds.

Of a group of several seeds each arm is a faint line and their mean a bold one. Of very many arms the first are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import TypeVar

from flodl.report.chart import Chart, Line, Point
from flodl.report.compare import Comparison, metric_words
from flodl.report.compared import Compared
from flodl.report.figures import reading
from flodl.report.history import EpochPoint, RoundPoint, Trace
from flodl.spec.stop import TRAIN

__all__ = ["MOST_ARMS", "charts", "drawn_arms", "thinned"]

MOST_ARMS = 40
SYNC = ("cpu_sync", "nccl_sync")
ALL_POINTS = 2400  # of one figure's lines together
T = TypeVar("T")
_Reading = Callable[[EpochPoint], float | None]


def drawn_arms(comparison: Comparison) -> list[Compared]:
    """The arms whose lines are drawn."""
    return [arm for arm in comparison.arms if arm.has_trained][:MOST_ARMS]


def charts(comparison: Comparison, traces: Mapping[str, Trace]) -> list[Chart]:
    """The figures that have anything to show. traces: by the arms' names."""
    arms = drawn_arms(comparison)
    groups = {group.name: number for number, group in enumerate(comparison.groups)}
    found = [
        *_loss_charts(arms, groups, traces),
        *_eval_charts(comparison, arms, groups),
        *_round_charts(arms, groups, traces),
    ]
    return [chart for chart in found if not chart.is_empty]


def thinned(points: Sequence[T], most: int) -> Sequence[T]:
    """Every n-th of them and the last one."""
    size = -(-len(points) // most) or 1
    return points[::-1][::size][::-1]


def _loss_charts(arms: Sequence[Compared], groups: Mapping[str, int], traces: Mapping[str, Trace]) -> list[Chart]:
    """Where a journal tells more of the training loss than an epoch's end does, that is drawn; means stay per epoch."""
    loss: _Reading = lambda point: point.loss  # noqa: E731
    fine = {arm.name: _thin(traces[arm.name].losses, len(arms)) for arm in arms
            if arm.name in traces and len(traces[arm.name].losses) > len(arm.epochs)}  # fmt: skip
    by_epoch = _lines(arms, groups, loss, lambda point: float(point.epoch),
                      {name: [(p.epoch, p.loss) for p in points] for name, points in fine.items()})  # fmt: skip
    by_seconds = _lines(arms, groups, loss, lambda point: point.seconds,
                        {name: [(p.seconds, p.loss) for p in points] for name, points in fine.items()})  # fmt: skip
    said = "Within epochs: means of neighbouring windows." if fine else "At the end of each epoch."
    return _pair("loss", "training loss", (by_epoch, by_seconds), log=_has_magnitudes(arms, loss),
                 said=_whose(arms) + said)  # fmt: skip


def _eval_charts(comparison: Comparison, arms: Sequence[Compared], groups: Mapping[str, int]) -> list[Chart]:
    metric = comparison.metric
    if metric == f"{TRAIN}loss":
        return []
    judged: _Reading = lambda point: reading(point, metric)  # noqa: E731
    lines = (_lines(arms, groups, judged, lambda point: float(point.epoch)),
             _lines(arms, groups, judged, lambda point: point.seconds))  # fmt: skip
    return _pair("eval", metric_words(metric), lines, log=comparison.less and _has_magnitudes(arms, judged),
                 said=_whose(arms) + "At the end of each epoch.")  # fmt: skip


def _whose(arms: Sequence[Compared]) -> str:
    return "A line per arm; the mean over seeds in bold. " if len(arms) > 1 else ""


def _pair(key: str, title: str, lines: Sequence[tuple[Line, ...]], *, log: bool, said: str) -> list[Chart]:
    """The same values against epochs and against time."""
    by_epoch, by_seconds = lines
    return [
        Chart(key=f"{key}-epoch", title=f"{title.capitalize()} against epochs", x="epoch", y=title, whole=True,
              said=said, log=log, lines=by_epoch),
        Chart(key=f"{key}-seconds", title=f"{title.capitalize()} against time", x="seconds of training", y=title,
              said="The same values against the seconds of training.", log=log, lines=by_seconds),
    ]  # fmt: skip


def _has_magnitudes(arms: Sequence[Compared], of: _Reading) -> bool:
    """All are above 0: where they are far apart, a loss's last epochs are seen by magnitudes only."""
    return all(value is None or value > 0.0 for arm in arms for value in map(of, arm.epochs))


def _lines(
    arms: Sequence[Compared],
    groups: Mapping[str, int],
    of: _Reading,
    x: Callable[[EpochPoint], float],
    fine: Mapping[str, Sequence[Point]] = MappingProxyType({}),
) -> tuple[Line, ...]:
    """Of each arm, and the means of groups. fine: by an arm's name, points that take the place of its epochs'."""
    found: list[Line] = []
    for name, number in groups.items():
        own = [arm for arm in arms if arm.group == name]
        averaged = [arm for arm in own if arm.counts]
        for arm in own:
            coarse = [(x(point), of(point)) for point in _thin(arm.epochs, len(arms))]
            points = tuple(fine.get(arm.name, coarse))
            is_faint = len(averaged) > 1 or not arm.counts
            found.append(Line(name=_named(arm), group=number, points=points, is_faint=is_faint))
        if len(averaged) > 1:
            found.append(Line(name=f"{name}, mean of {len(averaged)}", group=number,
                              points=_mean([_thin(arm.epochs, len(arms)) for arm in averaged], of, x)))  # fmt: skip
    return tuple(found)


def _mean(
    runs: Sequence[Sequence[EpochPoint]], of: _Reading, x: Callable[[EpochPoint], float]
) -> tuple[tuple[float, float | None], ...]:
    """At the epochs that all have: the mean of their values, at the mean of their x."""
    by_epoch = [{point.epoch: point for point in run} for run in runs]
    common = sorted(set(by_epoch[0]).intersection(*by_epoch[1:]))
    points: list[tuple[float, float | None]] = []
    for epoch in common:
        values = [of(run[epoch]) for run in by_epoch]
        known = [value for value in values if value is not None]
        mean = fmean(known) if len(known) == len(values) else None
        points.append((fmean(x(run[epoch]) for run in by_epoch), mean))
    return tuple(points)


def _round_charts(arms: Sequence[Compared], groups: Mapping[str, int], traces: Mapping[str, Trace]) -> list[Chart]:
    """Sync modes average after every step, with an anchor of 1 and no divergence: beside other modes they are left out,
    for their thousands of rounds would leave no room for those."""
    arms = [arm for arm in arms if arm.result is not None and arm.result.world_size > 1]
    sync = [arm for arm in arms if arm.result is not None and arm.result.mode in SYNC]
    arms = [arm for arm in arms if arm not in sync] or arms
    note = " Sync modes (anchor 1) are left out." if sync and sync != arms else ""

    def lines(of: Callable[[RoundPoint], float | None]) -> tuple[Line, ...]:
        return tuple(
            Line(name=_named(arm), group=groups[arm.group],
                 points=tuple((float(p.round), of(p)) for p in _thin(traces[arm.name].rounds, len(arms))))
            for arm in arms if arm.name in traces
        )  # fmt: skip

    return [
        Chart(key="anchor-round", title="Anchor against rounds", x="round (averaging)", y="batches",
              said="Batches of the slowest rank between two averagings." + note,
              lines=lines(lambda p: p.anchor), whole=True, whole_y=True, log=True),
        Chart(key="divergence-round", title="Divergence against rounds", x="round (averaging)",
              y="largest ||before - after|| / ||after||", lines=lines(lambda p: p.divergence), whole=True, log=True,
              said="How far replicas were apart when they were averaged." + note),
    ]  # fmt: skip


def _thin(points: Sequence[T], num_lines: int) -> Sequence[T]:
    """As few as leave a figure of so many lines small."""
    return thinned(points, max(20, ALL_POINTS // max(1, num_lines)))


def _named(arm: Compared) -> str:
    seed = "" if arm.seed is None else f", seed {arm.seed}"
    fate = "" if arm.counts else f" ({arm.status})"
    return f"{arm.group}{seed}{fate}"
