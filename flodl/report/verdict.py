"""Which group of arms is best, by each criterion, and how sure that is; in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

import msgspec

from flodl.report.confidence import Evidence, compared, confidence_words
from flodl.report.figures import FIGURES, Figure, shown

__all__ = ["CRITERIA", "Criterion", "Tried", "Verdict", "criterion_figure", "judge", "sureness"]

Criterion = Literal["time_to_target", "quality", "quality_at_end", "loss_per_second", "samples_per_second"]
CRITERIA: dict[Criterion, str] = {
    "time_to_target": "seconds_to_target",
    "quality": "metric_at_epoch",
    "quality_at_end": "metric_at_end",
    "loss_per_second": "loss_per_second",
    "samples_per_second": "samples_per_second",
}


class Tried(msgspec.Struct, frozen=True):
    """What a group has to show by a criterion. values: seed -> value. had: arms with a value, of so many that were
    tried: those that ended well or failed."""

    values: Mapping[int, float]
    had: int
    tried: int

    @property
    def mean(self) -> float:
        return fmean(self.values.values())

    @property
    def share(self) -> float:
        return self.had / self.tried


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The best group by one criterion, against the next best one. title: the criterion in words. arms: of the winner,
    with a value; tried: of it, that ended well or failed. factor: how many times better it is, where both values are
    above 0 and were had equally often. said: all of it in words."""

    by: Criterion
    title: str
    winner: str
    value: float
    arms: int
    tried: int
    runner_up: str = ""
    runner_up_value: float | None = None
    runner_up_arms: int = 0
    runner_up_tried: int = 0
    factor: float | None = None
    evidence: Evidence | None = None
    said: str

    @property
    def against(self) -> str:
        """The winner's value, the runner-up's, and how sure it is, in words."""
        if self.evidence is None:
            return f"{self.best}, the only one that {'reached' if self.by == 'time_to_target' else 'has'} it"
        times = "" if self.factor is None else f" ({self.factor:.2f} x)"
        return f"{self.best}, before {self.runner_up}, {self.next_best}{times}; {sureness(self.evidence)}"

    @property
    def best(self) -> str:
        """The winner's value for people."""
        return _words(self.by, self.value, self.arms, self.tried)

    @property
    def next_best(self) -> str:
        """The runner-up's value for people; "" where there is none."""
        value = self.runner_up_value
        return "" if value is None else _words(self.by, value, self.runner_up_arms, self.runner_up_tried)


def criterion_figure(by: Criterion) -> Figure:
    """The figure that a criterion looks at."""
    return next(figure for figure in FIGURES if figure.name == CRITERIA[by])


def judge(by: Criterion, groups: Mapping[str, Tried], *, less: bool, title: str, by_share: bool) -> Verdict | None:
    """None where no group has a value. title: the criterion in words. by_share: the group of whose arms the larger part
    has a value is the better one, and means decide between equal parts."""
    known = {name: group for name, group in groups.items() if group.values}
    if not known:
        return None

    def rank(name: str) -> tuple[float, float]:
        return -known[name].share if by_share else 0.0, known[name].mean if less else -known[name].mean

    ranked = sorted(known, key=rank)
    best = known[ranked[0]]
    alone = Verdict(by=by, title=title, winner=ranked[0], value=best.mean, arms=best.had, tried=best.tried, said="")
    if len(ranked) < 2:
        return _told(alone)
    second = known[ranked[1]]
    is_shared = by_share and best.share > second.share
    found = msgspec.structs.replace(
        alone,
        runner_up=ranked[1],
        runner_up_value=second.mean,
        runner_up_arms=second.had,
        runner_up_tried=second.tried,
        factor=None if is_shared else _factor(best.mean, second.mean, less=less),
        evidence=_UNEQUAL if is_shared else compared(best.values, second.values, less=less),
    )
    return _told(found)


def sureness(evidence: Evidence) -> str:
    """How sure a verdict is."""
    if evidence.p is None:
        return f"no confidence can be given: {evidence.why}"
    chance = "" if evidence.is_sure else ", so it may be chance"
    return f"confidence {confidence_words(evidence.p)} ({evidence.kind}, {evidence.seeds} seeds{chance})"


_UNEQUAL = Evidence(kind="none", seeds=0, why="the target was not reached equally often, so seconds do not compare")


def _told(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, said=f"{verdict.title}: {verdict.winner}, {verdict.against}")


def _words(by: Criterion, value: float, had: int, tried: int) -> str:
    """A criterion's value with its unit, and of how many arms it is where some have none."""
    figure = criterion_figure(by)
    text = shown(value, figure) + (f" {figure.unit}" if figure.unit else "")
    if had == tried:
        return text
    return f"{text} ({'reached by' if by == 'time_to_target' else 'in'} {had} of {tried})"


def _factor(best: float, second: float, *, less: bool) -> float | None:
    if best <= 0.0 or second <= 0.0:
        return None
    return second / best if less else best / second
