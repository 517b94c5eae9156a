"""The comparison: arms in, one value out that the terminal, Markdown, JSON and the page show. Pure.

Figures of every arm that trained; means and verdicts of those that ended well. Arms that differ in nothing but their
seed are one group. Failed arms stay in as failed, skipped ones as skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev

import msgspec

from flodl.report.arm import Arm, own_overrides, shared_overrides
from flodl.report.compared import Compared, Group, Mean
from flodl.report.figures import FIGURES, Goal, figures_of, reading
from flodl.report.next_arm import Suggestion, suggestion
from flodl.report.verdict import CRITERIA, Criterion, Tried, Verdict, criterion_figure, judge
from flodl.spec.stop import TRAIN, TargetConfig, wants_less

__all__ = [
    "COMPARISON_SCHEMA",
    "Comparison",
    "Question",
    "compare",
    "comparison_json",
    "goal_words",
    "metric_words",
]

COMPARISON_SCHEMA = 1


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. by: the criterion that decides; None: the time to the target. metric: by which quality is judged;
    None: the evaluation's loss, or what all have. epoch: from 1; None: the last one that all arms reached."""

    by: Criterion | None = None
    metric: str | None = None
    epoch: int | None = None
    target: TargetConfig = TargetConfig()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is shown. epoch: at which arms are compared, 0 where none has one. less: a smaller value of the
    metric is better. by: the criterion that decided. shared: overrides of every arm. conclusion: what is best, in
    words. verdicts: the deciding one first."""

    schema: int = COMPARISON_SCHEMA
    conclusion: str
    epoch: int
    metric: str
    less: bool
    target: Goal | None
    by: Criterion
    shared: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    suggestion: Suggestion | None
    groups: tuple[Group, ...]
    arms: tuple[Compared, ...]


def compare(arms: Sequence[Arm], question: Question | None = None) -> Comparison:
    """Compare arms, in their order."""
    asked = Question() if question is None else question
    counted = [arm for arm in arms if arm.counts]
    epoch = asked.epoch or min((arm.epochs[-1].epoch for arm in counted if arm.epochs), default=0)
    metric = asked.metric or _metric(counted, epoch)
    less = wants_less(metric, asked.target.mode if asked.target.metric in (None, metric) else "auto")
    goal = _goal(counted, asked, metric, less, epoch)
    shared = shared_overrides(arms)
    names = _group_names(arms, shared)
    all_compared = tuple(
        _compared(arm, name, epoch=epoch, metric=metric, goal=goal) for arm, name in zip(arms, names, strict=True)
    )
    groups = tuple(_group(name, [c for c in all_compared if c.group == name]) for name in dict.fromkeys(names))
    is_whole = all(arm.epochs[-1].epoch == epoch for arm in counted if arm.epochs)
    wanted = asked.by or "time_to_target"
    wanted = "quality" if wanted == "quality_at_end" and is_whole else wanted
    titles = _titles(metric, epoch, goal)
    verdicts = _verdicts(all_compared, wanted, titles, less=less, is_whole=is_whole, is_given=_is_given(goal))
    by = verdicts[0].by if verdicts else wanted
    after = _cautions(all_compared, verdicts, goal, epoch)
    before = _unmet(all_compared, goal, asked.by and wanted, verdicts, titles)
    return Comparison(
        conclusion=" ".join([*before, _conclusion(groups, verdicts, metric), *after]),
        epoch=epoch,
        metric=metric,
        less=less,
        target=goal,
        by=by,
        shared=shared,
        verdicts=verdicts,
        suggestion=suggestion(all_compared, groups, verdicts),
        groups=groups,
        arms=all_compared,
    )


def comparison_json(comparison: Comparison) -> bytes:
    """As docs/comparison.schema.json says: no NaN and no infinity in it, what is absent is null."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=2) + b"\n"


def _compared(arm: Arm, group: str, *, epoch: int, metric: str, goal: Goal | None) -> Compared:
    figures = None
    if arm.has_trained:
        figures = figures_of(arm.result, arm.epochs, epoch=epoch, metric=metric, goal=goal)
    return Compared(**{name: getattr(arm, name) for name in arm.__struct_fields__}, group=group, figures=figures)


def _metric(counted: Sequence[Arm], epoch: int) -> str:
    """The evaluation's loss, else a figure that all have, else the training's loss."""
    at = [point.eval for arm in counted for point in arm.epochs if point.epoch == epoch]
    common = set(at[0]).intersection(*at[1:]) if at else set[str]()
    if "loss" in common:
        return "loss"
    return min(common) if common else f"{TRAIN}loss"


def _goal(counted: Sequence[Arm], asked: Question, metric: str, less: bool, epoch: int) -> Goal | None:
    """The one that was given, or what all arms reached by that epoch."""
    target = asked.target
    if target.metric is not None and target.value is not None:
        is_less = less if target.metric == metric else wants_less(target.metric, target.mode)
        return Goal(metric=target.metric, value=target.value, less=is_less, is_given=True)
    values = [reading(point, metric) for arm in counted for point in arm.epochs if point.epoch == epoch]
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Goal(metric=metric, value=max(known) if less else min(known), less=less)


def _group_names(arms: Sequence[Arm], shared: Sequence[str]) -> list[str]:
    """What tells an arm's group from the others, its seed left out."""
    own = [" ".join(own_overrides(arm, shared, with_seed=False)) for arm in arms]
    return [name or ("all arms" if len(arms) > 1 else arm.name) for arm, name in zip(arms, own, strict=True)]


def _group(name: str, arms: Sequence[Compared]) -> Group:
    counted = [arm for arm in arms if arm.counts]
    values = {
        figure.name: [v for arm in counted if (v := getattr(arm.figures, figure.name)) is not None]
        for figure in FIGURES
    }
    return Group(
        name=name,
        arms=tuple(arm.name for arm in arms),
        seeds=tuple(sorted({arm.seed for arm in counted if arm.seed is not None})),
        ended_well=len(counted),
        figures={key: _mean_of(found) for key, found in values.items() if found},
    )


def _mean_of(values: Sequence[float]) -> Mean:
    """Mean and spread of at least one value."""
    spread = stdev(values) if len(values) > 1 else None
    return Mean(mean=fmean(values), spread=spread, arms=len(values))


def _tried(arms: Sequence[Compared], figure: str) -> dict[str, Tried]:
    """What each group has. Several arms of one group and seed count once, with their mean; unknown seeds differ."""
    found: dict[str, Tried] = {}
    for name in dict.fromkeys(arm.group for arm in arms):
        seeds: dict[int, list[float]] = {}
        own = [arm for arm in arms if arm.group == name and (arm.counts or arm.status == "failed")]
        for number, arm in enumerate(own):
            value = getattr(arm.figures, figure) if arm.counts else None
            if value is not None:
                seeds.setdefault(-1 - number if arm.seed is None else arm.seed, []).append(value)
        values = {seed: fmean(several) for seed, several in seeds.items()}
        found[name] = Tried(values, had=sum(map(len, seeds.values())), tried=len(own))
    return found


def _verdicts(
    arms: Sequence[Compared],
    wanted: Criterion,
    titles: Mapping[Criterion, str],
    *,
    less: bool,
    is_whole: bool,
    is_given: bool,
) -> tuple[Verdict, ...]:
    """By every criterion that there are values for; the wanted one first. is_whole: arms are compared at their ends.
    is_given: a person chose the target."""
    found: list[Verdict] = []
    for by, figure in CRITERIA.items():
        if by == "quality_at_end" and is_whole:
            continue  # it is the same as quality
        is_less = less if by.startswith("quality") else criterion_figure(by).better == "less"
        by_share = by == "time_to_target" and is_given
        verdict = judge(by, _tried(arms, figure), less=is_less, title=titles[by], by_share=by_share)
        if verdict is not None:
            found.append(verdict)
    return tuple(sorted(found, key=lambda verdict: verdict.by != wanted))


def _is_given(goal: Goal | None) -> bool:
    return goal is not None and goal.is_given


def _titles(metric: str, epoch: int, goal: Goal | None) -> Mapping[Criterion, str]:
    return {
        "time_to_target": "time to the target" if goal is None else f"time to {goal_words(goal)}",
        "quality": f"{metric_words(metric)} at epoch {epoch}",
        "quality_at_end": f"{metric_words(metric)} at the end",
        "loss_per_second": "fall of the training loss per second",
        "samples_per_second": "rate",
    }


def metric_words(metric: str) -> str:
    """A metric's name for people: train_loss is the training's, `loss` the evaluation's."""
    return "training loss" if metric == f"{TRAIN}loss" else f"evaluated {metric}"


def goal_words(goal: Goal) -> str:
    """A goal for people."""
    what = f"{metric_words(goal.metric)} of {goal.value:.4g} or {'less' if goal.less else 'more'}"
    return what if goal.is_given else f"{what} (which every arm that ended well reached)"


def _unmet(
    arms: Sequence[Compared],
    goal: Goal | None,
    asked: Criterion | None,
    verdicts: Sequence[Verdict],
    titles: Mapping[Criterion, str],
) -> Iterator[str]:
    """What to say before all else: nobody came to a target that was set, or nobody has what was asked for."""
    counted = [arm for arm in arms if arm.counts]
    if not counted:
        return
    is_missed = goal is not None and all(a.figures is None or a.figures.seconds_to_target is None for a in counted)
    if goal is not None and is_missed:
        yield f"No arm reached {goal_words(goal)}."
    is_said = is_missed and asked == "time_to_target"
    if asked is not None and not is_said and not any(verdict.by == asked for verdict in verdicts):
        yield f"Nothing tells the {titles[asked]} (by={asked})."


def _cautions(arms: Sequence[Compared], verdicts: Sequence[Verdict], goal: Goal | None, epoch: int) -> Iterator[str]:
    """What to know before the first verdict is believed."""
    counted = [arm for arm in arms if arm.counts]
    if len({arm.group for arm in counted}) < 2 or not verdicts:
        return
    yield from _at_once(counted, verdicts[0], goal)
    if len({arm.data for arm in counted if arm.data}) > 1:
        yield "These arms did not all have the same data and step, so losses and qualities do not compare."
    ends = {arm.epochs[-1].epoch for arm in counted if arm.epochs}
    if len(ends) > 1 and verdicts[0].by in ("time_to_target", "quality"):
        span = f"They end with epoch {min(ends)} to {max(ends)} and are compared at epoch {epoch}"
        yield f"{span}; by=quality_at_end compares their ends."


def _at_once(counted: Sequence[Compared], first: Verdict, goal: Goal | None) -> Iterator[str]:
    """Where the time to equal quality is that of the first epoch."""
    if first.by != "time_to_target" or goal is None or goal.is_given:
        return
    ahead = [arm for arm in counted if arm.group in (first.winner, first.runner_up)]
    for arms, who in ((counted, "Every arm"), (ahead, "Each of these two")):
        if all(_is_at_once(arm) for arm in arms):
            yield f"{who} reached it with its first epoch, so it says how fast an epoch is; target= sets a harder one."
            return


def _is_at_once(arm: Compared) -> bool:
    return arm.figures is not None and bool(arm.epochs) and arm.figures.seconds_to_target == arm.epochs[0].seconds


def _conclusion(groups: Sequence[Group], verdicts: Sequence[Verdict], metric: str) -> str:
    """One sentence or two: what is best and how sure that is."""
    well = [group for group in groups if group.ended_well]
    if not well:
        return "No arm ended well, so nothing is compared."
    if len(well) == 1:
        only, at_end = well[0], well[0].figures.get("metric_at_end")
        spread = f" ± {at_end.spread:.2g}" if at_end is not None and at_end.spread is not None else ""
        quality = f": {metric_words(metric)} {at_end.mean:.4g}{spread} at the end" if at_end is not None else ""
        others = " Nothing else did." if len(groups) > 1 else ""
        return f"{only.name}: {only.ended_well} of {len(only.arms)} ended well{quality}.{others}"
    first = verdicts[0]
    return f"{first.winner} is best by {first.title}: {first.against}."
