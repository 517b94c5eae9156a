"""Which group of arms is best, by each criterion, and how sure that is; in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

import msgspec

from flodl.report.confidence import Evidence, compared
from flodl.report.figures import FIGURES, Figure, shown

__all__ = ["CRITERIA", "Criterion", "Verdict", "criterion_figure", "judge", "sureness", "value_words"]

Criterion = Literal["time_to_target", "quality", "quality_at_end", "loss_per_second", "samples_per_second"]
CRITERIA: dict[Criterion, str] = {
    "time_to_target": "seconds_to_target",
    "quality": "metric_at_epoch",
    "quality_at_end": "metric_at_end",
    "loss_per_second": "loss_per_second",
    "samples_per_second": "samples_per_second",
}
SURE = 0.05


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The best group by one criterion, against the next best one. title: the criterion in words. factor: how many times
    better it is, where both values are above 0. said: all of it in words."""

    by: Criterion
    title: str
    winner: str
    value: float
    runner_up: str = ""
    runner_up_value: float | None = None
    factor: float | None = None
    evidence: Evidence | None = None
    said: str


def criterion_figure(by: Criterion) -> Figure:
    """The figure that a criterion looks at."""
    return next(figure for figure in FIGURES if figure.name == CRITERIA[by])


def judge(by: Criterion, groups: Mapping[str, Mapping[int, float]], *, less: bool, title: str) -> Verdict | None:
    """groups: name -> seed -> value. None where no group has one. title: the criterion in words."""
    known = {name: values for name, values in groups.items() if values}
    if not known:
        return None
    means = {name: fmean(values.values()) for name, values in known.items()}
    ranked = sorted(means, key=lambda name: means[name] if less else -means[name])
    winner = ranked[0]
    if len(ranked) < 2:
        said = f"{title}: {winner}, {value_words(by, means[winner])}, the only one that has it"
        return Verdict(by=by, title=title, winner=winner, value=means[winner], said=said)
    second = ranked[1]
    evidence = compared(known[winner], known[second])
    factor = _factor(means[winner], means[second], less=less)
    best, next_best = value_words(by, means[winner]), value_words(by, means[second])
    said = f"{title}: {winner}, {best}, before {second}, {next_best}"
    times = f" ({factor:.2f} x)" if factor is not None else ""
    return Verdict(by=by, title=title, winner=winner, value=means[winner],
                   runner_up=second, runner_up_value=means[second],
                   factor=factor, evidence=evidence, said=f"{said}{times}; {sureness(evidence)}")  # fmt: skip


def sureness(evidence: Evidence) -> str:
    """How sure a verdict is."""
    if evidence.p is None:
        return f"no confidence can be given: {evidence.why}"
    chance = "" if evidence.p < SURE else ", so it may be chance"
    return f"confidence {1.0 - evidence.p:.0%} ({evidence.kind}, {evidence.seeds} seeds{chance})"


def value_words(by: Criterion, value: float) -> str:
    """A criterion's value with its unit."""
    figure = criterion_figure(by)
    return shown(value, figure) + (f" {figure.unit}" if figure.unit else "")


def _factor(best: float, second: float, *, less: bool) -> float | None:
    if best <= 0.0 or second <= 0.0:
        return None
    return second / best if less else best / second
