"""Guards: from divergence to a verdict."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.guard import Guard, MsfGuard, NoGuard, TrendGuard, make_guard
from flodl.decide.verdict import NudgeDown, Stable, SuppressGrowth
from flodl.spec.elche import ElCheConfig, Mode
from flodl.spec.guard import GuardConfig, MsfGuardConfig, NoGuardConfig, TrendGuardConfig

SHORT = {Stable: "S", SuppressGrowth: "SUP", NudgeDown: "NUDGE"}
CADENCE = ElCheConfig(mode="cpu_cadence")
ELASTIC = ElCheConfig(mode="cpu_async", easgd_alpha=0.5)
DOUBLING = [1e-4 * 2**i for i in range(8)]


def verdicts(guard: Guard, divergences: list[float], k_max: int = 4) -> str:
    return ",".join(SHORT[type(guard.observe(d, 2 * k_max, k_max))] for d in divergences)


def test_no_guard_is_always_stable():
    assert verdicts(make_guard(NoGuardConfig(), CADENCE), [0.1, 1.0, 10.0, 100.0]) == "S,S,S,S"


@pytest.mark.parametrize(
    ("threshold", "divergences", "expected"),
    [
        (0.05, [0.02, 0.03, 0.06], "S,S,SUP"),
        (0.05, [0.02, 0.03, 0.05], "S,S,S"),
        (0.05, [0.06, 0.07, 0.08, 0.08, 0.09, 0.10, 0.11], "S,S,SUP,S,S,SUP,SUP"),
        (0.3, [0.2, 0.25, 0.29], "S,S,S"),
        (0.3, [0.2, 0.25, 0.31], "S,S,SUP"),
    ],
)
def test_the_trend_guard_objects_to_two_rises_above_its_threshold(
    threshold: float, divergences: list[float], expected: str
):
    assert verdicts(make_guard(TrendGuardConfig(threshold=threshold), CADENCE), divergences) == expected


def test_elastic_averaging_does_not_arm_the_trend_guard_for_ever():
    standing = [0.09, 0.1, 0.11]
    assert verdicts(make_guard(TrendGuardConfig(), CADENCE), standing) == "S,S,SUP"
    assert verdicts(make_guard(TrendGuardConfig(), ELASTIC), standing) == "S,S,S"


@pytest.mark.parametrize("mode", ["cpu_cadence", "nccl_cadence", "cpu_sync", "nccl_sync"])
def test_alpha_does_not_leak_into_other_modes(mode: Mode):
    guard = make_guard(TrendGuardConfig(), ElCheConfig(mode=mode, easgd_alpha=0.5))
    assert verdicts(guard, [0.09, 0.1, 0.11]) == "S,S,SUP"


def test_an_explicit_threshold_wins_over_the_elastic_one():
    assert verdicts(make_guard(TrendGuardConfig(threshold=0.05), ELASTIC), [0.09, 0.1, 0.11]) == "S,S,SUP"


def test_a_restored_trend_guard_is_not_blind():
    before = TrendGuard(0.05)
    verdicts(before, [0.06, 0.07])
    after = TrendGuard(0.05)
    after.restore(json.loads(json.dumps(before.snapshot())))
    assert verdicts(after, [0.08]) == "SUP"
    assert TrendGuard.is_stored


def test_the_trend_guard_keeps_five_values():
    guard = TrendGuard()
    verdicts(guard, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert guard.snapshot() == {"ring": [0.2, 0.3, 0.4, 0.5, 0.6]}


def test_the_msf_guard_compares_a_bias_corrected_average_of_the_rate_per_step():
    guard = MsfGuard(MsfGuardConfig())
    rates: list[float | None] = []
    for divergence in (0.01, 0.02, 0.02, 0.01):
        guard.observe(divergence, 8, 4)
        rates.append(guard.smoothed_rate)
    assert rates[0] is None
    assert rates[1:] == pytest.approx([0.173287, 0.082083, -0.012149], abs=5e-7)


def test_the_rate_is_the_logarithm_of_the_quotient_per_step():
    raw: list[float] = []
    for pair in ((0.01, 0.02), (0.02, 0.02), (0.02, 0.01)):
        guard = MsfGuard(MsfGuardConfig())
        verdicts(guard, list(pair))
        assert guard.smoothed_rate is not None
        raw.append(guard.smoothed_rate)
    assert raw == pytest.approx([0.173287, 0.0, -0.173287], abs=5e-7)


def test_the_msf_guard_nudges_first_and_suppresses_with_a_streak_of_its_own():
    assert verdicts(MsfGuard(MsfGuardConfig()), DOUBLING) == "S,S,S,NUDGE,SUP,S,NUDGE,SUP"


def test_the_msf_guard_without_nudging_suppresses_every_third_time():
    guard = MsfGuard(MsfGuardConfig(nudge_threshold=1e9))
    assert verdicts(guard, DOUBLING) == "S,S,S,SUP,S,S,SUP,S"


def test_a_nudge_carries_the_configured_factor():
    guard = MsfGuard(MsfGuardConfig(nudge_factor=0.7, nudge_sustain=1))
    guard.observe(0.01, 8, 4)
    verdict = guard.observe(0.02, 8, 4)
    assert isinstance(verdict, NudgeDown)
    assert verdict.factor == 0.7


def test_a_value_below_the_threshold_resets_the_streak():
    guard = MsfGuard(MsfGuardConfig(ema_alpha=0.0))
    assert verdicts(guard, [0.01, 0.02, 0.04, 0.02, 0.04, 0.08, 0.16]) == "S,S,S,S,S,S,NUDGE"


def test_a_round_without_steps_stores_the_divergence_and_gives_no_rate():
    guard = MsfGuard(MsfGuardConfig())
    guard.observe(0.01, 8, 4)
    guard.observe(0.02, 0, 0)
    assert guard.smoothed_rate is None
    guard.observe(0.04, 8, 4)
    assert guard.smoothed_rate == pytest.approx(math.log(2) / 4)


def test_a_negligible_divergence_forgets_the_one_before_and_not_the_average():
    guard = MsfGuard(MsfGuardConfig())
    verdicts(guard, [0.01, 0.02, 1e-8])
    assert guard.smoothed_rate == pytest.approx(math.log(2) / 4)
    guard.observe(1.0, 8, 4)
    assert guard.smoothed_rate == pytest.approx(math.log(2) / 4)


def test_at_quotas_of_some_hundreds_the_msf_guard_does_not_nudge():
    assert "NUDGE" not in verdicts(MsfGuard(MsfGuardConfig()), DOUBLING, k_max=300)


@pytest.mark.parametrize("divergence", [math.nan, math.inf])
@pytest.mark.parametrize("config", [TrendGuardConfig(), MsfGuardConfig()])
def test_a_divergence_that_is_no_number_is_not_remembered_and_stops_growth(config: GuardConfig, divergence: float):
    guard = make_guard(config, CADENCE)
    guard.observe(0.01, 8, 4)
    before = guard.snapshot()
    assert isinstance(guard.observe(divergence, 8, 4), SuppressGrowth)
    assert guard.snapshot() == before


def test_only_the_trend_guard_goes_into_a_checkpoint():
    stored = [type(guard) for guard in (NoGuard(), TrendGuard(), MsfGuard(MsfGuardConfig())) if guard.is_stored]
    assert stored == [TrendGuard]


@pytest.mark.parametrize("config", [NoGuardConfig(), TrendGuardConfig(), MsfGuardConfig()])
def test_every_verdict_has_a_reason(config: GuardConfig):
    guard = make_guard(config, CADENCE)
    assert all(guard.observe(d, 8, 4).reason for d in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.0, 0.1))


@given(
    st.sampled_from([NoGuardConfig(), TrendGuardConfig(), MsfGuardConfig()]),
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 50)), max_size=20),
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 50)), min_size=1, max_size=20),
)
def test_a_restored_guard_answers_as_the_old_one(
    config: GuardConfig, past: list[tuple[float, int]], future: list[tuple[float, int]]
):
    old, new = make_guard(config, CADENCE), make_guard(config, CADENCE)
    for divergence, k_max in past:
        old.observe(divergence, k_max, k_max)
    new.restore(json.loads(json.dumps(old.snapshot())))
    for divergence, k_max in future:
        assert new.observe(divergence, k_max, k_max) == old.observe(divergence, k_max, k_max)
    assert new.snapshot() == old.snapshot()
