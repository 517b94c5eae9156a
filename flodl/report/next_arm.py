"""What to try next: the first rule that the figures of the best arms call for, as overrides that can be typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from flodl.report.commands import commands
from flodl.report.compared import Compared, Group
from flodl.report.verdict import Verdict

__all__ = ["Suggestion", "suggestion"]

MUCH = 0.10  # of the ranks' time
WIDE = 0.05  # divergence at which the default guard begins to look twice
WORKERS = 4
MOST_WORKERS = 16
SEEDS = 3


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """overrides: to be typed beside those that each of these groups had. why: what asks for it. commands: the same as
    whole commands, one per group; empty where what they had is told too shortly to be typed."""

    overrides: tuple[str, ...]
    groups: tuple[str, ...]
    why: str
    commands: tuple[str, ...] = ()

    @property
    def beside(self) -> str:
        """The groups in words."""
        return " and ".join(self.groups)


class _Best(msgspec.Struct, frozen=True):
    """The best group. modes: that were compared. figures: name -> mean. workers: that read its data, null
    where that is not known."""

    name: str
    mode: str
    modes: frozenset[str]
    figures: Mapping[str, float]
    workers: int | None

    def advice(self, override: str, why: str) -> Suggestion:
        return Suggestion(overrides=(override,), groups=(self.name,), why=why)

    def much(self, name: str) -> bool:
        return self.figures.get(name, 0.0) >= MUCH

    def lacks(self, mode: str) -> bool:
        return mode not in self.modes


def suggestion(arms: Sequence[Compared], groups: Sequence[Group], verdicts: Sequence[Verdict]) -> Suggestion | None:
    """The suggested next arm; None where nothing ended well or nothing is to be gained that the figures tell of."""
    if not verdicts:
        return None
    best = _best(arms, verdicts[0].winner)
    found = next((advice for rule in _RULES if (advice := rule(best)) is not None), None)
    found = found or _more_seeds(groups, verdicts[0])
    return found and msgspec.structs.replace(found, commands=commands(arms, found.groups, found.overrides))


def _best(arms: Sequence[Compared], name: str) -> _Best:
    own = [arm for arm in arms if arm.group == name and arm.counts]
    modes = frozenset(arm.result.mode for arm in arms if arm.result is not None and arm.counts)
    names = ("idle_share", "averaging_share", "data_wait_share", "divergence", "anchor")
    found = {key: [v for arm in own if (v := getattr(arm.figures, key)) is not None] for key in names}
    means = {key: sum(values) / len(values) for key, values in found.items() if values}
    mode = own[0].result.mode if own and own[0].result is not None and own[0].result.world_size > 1 else ""
    workers = max((arm.num_workers for arm in own if arm.num_workers is not None), default=None)
    return _Best(name, mode, modes, means, workers)


def _data(best: _Best) -> Suggestion | None:
    workers = WORKERS if best.workers is None or best.workers < WORKERS else 2 * best.workers
    if not best.much("data_wait_share") or workers > MOST_WORKERS:
        return None
    part = best.figures["data_wait_share"]
    why = f"{best.name} waits for data {part:.0%} of its ranks' time"
    return best.advice(f"loader.num_workers={workers}", why)


def _cadence(best: _Best) -> Suggestion | None:
    """Sync makes fast ranks wait, and averages after every step."""
    backend, _, kind = best.mode.partition("_")
    waits = best.much("idle_share") or best.much("averaging_share")
    if kind != "sync" or not waits or not best.lacks(f"{backend}_cadence"):
        return None
    return best.advice(f"elche={backend}_cadence", _waiting(best))


def _async(best: _Best) -> Suggestion | None:
    """A cadence that is waited for can run beside training instead."""
    waits = best.much("idle_share") or best.much("averaging_share")
    if best.mode != "cpu_cadence" or not waits or not best.lacks("cpu_async"):
        return None
    return best.advice("elche=cpu_async", _waiting(best))


def _longer(best: _Best) -> Suggestion | None:
    if not best.mode or (best.mode.endswith("sync") and not best.mode.endswith("async")):
        return None
    if not best.much("averaging_share") or best.figures.get("divergence", 0.0) >= WIDE:
        return None
    anchor = 2 * max(1, round(best.figures.get("anchor", 1.0)))
    part = best.figures["averaging_share"]
    why = f"averaging takes {part:.0%} of the ranks' time in {best.name}, and its replicas stay close together"
    return best.advice(f"elche.anchor={anchor}", why)


def _shorter(best: _Best) -> Suggestion | None:
    divergence, anchor = best.figures.get("divergence", 0.0), round(best.figures.get("anchor", 1.0))
    if not best.mode or divergence < WIDE or anchor < 2:
        return None
    why = f"the replicas of {best.name} end {divergence:.2g} apart: averaging more often may learn more per sample"
    return best.advice(f"elche.anchor={anchor // 2}", why)


_RULES: tuple[Callable[[_Best], Suggestion | None], ...] = (_data, _cadence, _async, _longer, _shorter)


def _waiting(best: _Best) -> str:
    part = best.figures.get("idle_share", 0.0) + best.figures.get("averaging_share", 0.0)
    return f"{best.name} waits and averages {part:.0%} of its ranks' time"


def _more_seeds(groups: Sequence[Group], verdict: Verdict) -> Suggestion | None:
    """Where the best two are not told apart."""
    evidence = verdict.evidence
    if evidence is None or evidence.is_sure:
        return None
    used = {seed for group in groups for seed in group.seeds}
    first = max(used, default=-1) + 1
    seeds = ",".join(str(first + i) for i in range(SEEDS))
    return Suggestion(overrides=(f"trainer.seed={seeds}",), groups=(verdict.winner, verdict.runner_up),
                      why="these two are not told apart yet")  # fmt: skip
