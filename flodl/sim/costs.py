"""What virtual time costs, and what goes wrong in it: both are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from flodl.decide.messages import CallbackName
from flodl.decide.roster import Place
from flodl.errors import ConfigError, Problem
from flodl.spec.job import JobSpec

__all__ = ["Costs", "Fault", "SpeedChange", "costs_of"]


class SpeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_seconds` on, a batch of `rank` takes `ms`."""

    rank: int
    at_seconds: float
    ms: float


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Durations, milliseconds. ms_per_batch: one per rank. jitter: every duration is scaled by 1 +- jitter.

    blend_ms: what adopting a result costs the training thread in cpu_async. first_batch_ms: added to a rank's very
    first batch (set-up). start_ms: from the order for a replacement to its being ready. changes: speeds that move.
    divergence: what every averaging reports. accuracy: what evaluations tell, one after the other; the last one again
    and again.
    """

    ms_per_batch: tuple[float, ...]
    averaging_ms: float = 2.0
    link_ms: float = 0.2
    form_ms: float = 20.0
    eval_ms: float = 200.0
    save_ms: float = 100.0
    blend_ms: float = 0.2
    first_batch_ms: float = 0.0
    start_ms: float = 60.0
    jitter: float = 0.0
    divergence: float = 0.01
    accuracy: tuple[float, ...] = (0.9,)
    num_samples: int = 50_000
    seed: int = 0
    changes: tuple[SpeedChange, ...] = ()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong.

    kind: death (noticed `notice_ms` later) | stall (frozen for `lasts_ms`; declared dead after `notice_ms` of it) |
    stop (somebody asks the run to end) | duplicate (every message of `rank` comes twice, the second `lasts_ms` later
    at most) | late (messages of `rank` take up to `lasts_ms` longer) | callback (`callback` fails on `rank`) |
    nonfinite (`rank`'s contribution to its next averaging is not finite) | stillborn (replacements of `rank` up to the
    `nth` die before they are ready) | unready (they never become ready) | foreign (they have built another model).
    When: at_seconds, or after_ms after the n-th command named `on`.
    """

    kind: Literal[
        "death", "stall", "stop", "duplicate", "late", "callback", "nonfinite", "stillborn", "unready", "foreign"
    ]
    rank: int = 0
    at_seconds: float = 0.0
    on: str = ""
    nth: int = 1
    after_ms: float = 0.0
    notice_ms: float = 100.0
    lasts_ms: float = 0.0
    callback: CallbackName = "save"


def costs_of(job: JobSpec, roster: Sequence[Place]) -> Costs:
    """The costs that a job's ``sim`` block names; without figures a batch takes 10 ms at speed 1.

    Raises ConfigError where figures are neither one for all ranks nor one for each.
    """
    sim = job.sim
    ms = sim.ms_per_batch or tuple(10.0 / place.speed for place in roster)
    if len(ms) not in (1, len(roster)):
        raise ConfigError([Problem(key="sim.ms_per_batch", value=str(list(ms)),
                                   constraint=f"there are {len(roster)} ranks",
                                   remedy="give one number for all of them, or one per rank")])  # fmt: skip
    return Costs(
        ms_per_batch=ms if len(ms) == len(roster) else ms * len(roster),
        averaging_ms=sim.averaging_ms,
        jitter=sim.jitter,
        num_samples=sim.num_samples,
        seed=job.trainer.seed,
    )
