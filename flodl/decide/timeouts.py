"""Timeouts: every limit of a run, from one scale. What each is for is said once, here.

They hold each other: a rank is suspected before it is dead, dead before an averaging gives up on it, and averagings
give up before the run does. Were one out of order, a survivor would fail for want of a word that was still to come.
"""

from __future__ import annotations

import itertools

import msgspec

from flodl.errors import ConfigError, Problem

__all__ = ["Timeouts", "timeouts_of"]

LEAST_HEARTBEAT_SECONDS = 0.02  # threads that wake more often steal what they watch over
STEP_FACTOR = 10.0


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. heartbeat: between signs of life, both ways. suspected: silence that people are told of. dead: silence,
    of a rank to its controller or of the controller to a rank or an agent, that ends it. step: without progress while
    training, at least (see `progress`). callback: one evaluation or save. collective: an averaging, for which all
    members are there. restart: from a death to the start of a replacement; doubled for each further one. stall: an
    averaging that does not come about although nobody is dead ends the run. grace: from TERM to KILL."""

    heartbeat: float = 1.0
    suspected: float = 5.0
    dead: float = 30.0
    step: float = 60.0
    callback: float = 3600.0
    collective: float = 60.0
    restart: float = 1.0
    stall: float = 300.0
    grace: float = 10.0

    def progress(self, window_seconds: float) -> float:
        """Training without progress for so long is a hang. window_seconds: what this rank's windows take."""
        return max(self.step, STEP_FACTOR * window_seconds)

    @property
    def patience(self) -> float:
        """What a rank whose averaging has failed waits for the coordinator's word: longer than the coordinator waits
        for the averaging (see `stalls_at`), or a rank would tell of its own end while the run is being saved."""
        return self.stall + self.step + self.dead

    @property
    def meeting(self) -> float:
        """What the members of a group wait for one that comes late: an evaluation may be in its way. The coordinator
        waits less long (see `stalls_at`), so that it is the one who ends that."""
        return self.stall + self.callback + self.collective

    @property
    def alone(self) -> float:
        """What ranks that run a grant may wait for in it: the slowest one's step, and its callbacks."""
        return self.step + self.callback


def timeouts_of(scale: float) -> Timeouts:
    """All limits x membership.timeout_scale. ConfigError where their order would not hold."""
    dead = 30.0 * scale
    limits = Timeouts(
        heartbeat=max(LEAST_HEARTBEAT_SECONDS, 1.0 * scale),
        suspected=5.0 * scale,
        dead=dead,
        step=60.0 * scale,
        callback=3600.0 * scale,
        collective=2.0 * dead,
        restart=1.0 * scale,
        stall=max(10.0 * dead, 300.0 * scale),
        grace=10.0 * scale,
    )
    in_order = ("heartbeat", "suspected", "dead", "collective", "stall")
    for shorter, longer in itertools.pairwise(in_order):
        if not getattr(limits, shorter) < getattr(limits, longer):
            told = ", ".join(f"{name} {getattr(limits, name):g} s" for name in in_order)
            raise ConfigError(
                [
                    Problem(
                        key="membership.timeout_scale",
                        value=f"{scale:g}",
                        constraint=f"the limits must grow in this order: {told}; {shorter} is not below {longer}",
                        remedy="0.1 is for tests; slow networks want more than 1",
                    )
                ]
            )
    return limits
