"""Guards in virtual time: what costs growth, what objects to it, and what is said of it."""

from __future__ import annotations

from flodl.decide.messages import RunWindow
from flodl.decide.verdict import objections
from flodl.sim import Costs, Simulated, simulate
from flodl.spec.guard import GuardConfig, NoGuardConfig, TrendGuardConfig
from flodl.spec.job import EvalConfig, MetaConfig, TrainerConfig
from tests.scenarios.rigs import job_of, places_of

BATCH = 8


def run(guard: GuardConfig, anchor: int = 10) -> Simulated:
    """Replicas that are far apart, now more and now less; an averaging that costs more than 0.01 of the compute."""
    job = job_of(
        "cpu_cadence",
        elche={"overhead_target": 0.01, "anchor": anchor},
        guard=guard,
        meta=MetaConfig(enabled=False),
        trainer=TrainerConfig(num_epochs=4, batch_size=BATCH),
        eval=EvalConfig(every_epochs=None),
    )
    costs = Costs(
        ms_per_batch=(10.0, 25.0), averaging_ms=15.0 * anchor, divergence=0.2, jitter=0.3, num_samples=BATCH * 20_000
    )
    return simulate(job, places_of([BATCH, BATCH]), costs)


def windows(done: Simulated) -> dict[int, tuple[int, tuple[str, ...]]]:
    """Round -> anchor, and what was objected before it."""
    commands = [command for _, found in done.journal for command in found if isinstance(command, RunWindow)]
    return {c.rounds[0].number: (c.anchor, objections(c.reason)) for c in commands if not c.alone}


def test_without_a_guard_a_costly_averaging_makes_the_anchor_grow_and_nobody_objects() -> None:
    found = windows(run(NoGuardConfig()))
    assert max(anchor for anchor, _ in found.values()) > 500
    assert not any(said for _, said in found.values())


def test_a_rise_above_the_threshold_drops_the_growth_that_was_proposed() -> None:
    found = windows(run(TrendGuardConfig()))
    dropped = [n for n, (_, said) in found.items() if any(text.endswith("growth is suppressed") for text in said)]
    assert dropped
    for number in dropped:
        anchor, said = found[number]
        assert said[0].startswith("SuppressGrowth: divergence rises: ")
        assert anchor <= found[number - 1][0]


def test_an_anchor_of_500_is_held_where_replicas_drift() -> None:
    assert max(anchor for anchor, _ in windows(run(NoGuardConfig(), 500)).values()) == 1000
    guarded = windows(run(TrendGuardConfig(), 500))
    assert any(text.startswith("SuppressGrowth") for _, said in guarded.values() for text in said)
