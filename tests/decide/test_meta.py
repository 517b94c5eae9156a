"""The meta-controller: nudges for learning-rate drops and sustained divergence, and the end of movement."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.meta import MetaController, effective
from flodl.decide.phase import Phase
from flodl.decide.verdict import Nudge, NudgeDown, Stable, SuppressGrowth, Verdict
from flodl.spec.job import MetaConfig

ON = MetaConfig()
BAD = SuppressGrowth()
GOOD = Stable()


def feed(
    meta: MetaController,
    *,
    rates: Iterable[float] = (),
    verdicts: Iterable[Verdict] = (),
    anchors: Iterable[int] = (),
    phase: Phase = Phase.STABLE,
) -> list[float | None]:
    """Factors per cycle; the shorter iterables stay at their last value."""
    columns = [list(rates) or [0.1], list(verdicts) or [GOOD], list(anchors) or [100]]
    factors: list[float | None] = []
    for i in range(max(len(column) for column in columns)):
        rate, verdict, anchor = (column[min(i, len(column) - 1)] for column in columns)
        nudge = meta.observe(anchor, rate, verdict, phase, 0.01)
        factors.append(nudge.factor if nudge else None)
    return factors


@pytest.mark.parametrize(
    ("anchors", "base", "factor"),
    [
        ([100] * 5, 0.5, 0.5),
        ([100, 110, 120, 130, 140], 0.5, 0.416667),
        ([100, 110, 120, 130, 140], 0.3, 0.183333),
        ([100, 110, 120, 130, 140], 0.7, 0.65),
        ([110, 120, 130, 140, 140], 0.5, 0.453125),
        ([100, 100, 100, 100, 50], 0.5, 0.722222),
        ([1, 1, 1, 1, 1000], 0.3, 0.1),
        ([1000, 1000, 1000, 1000, 1], 0.7, 0.95),
    ],
)
def test_a_growing_anchor_is_cut_harder(anchors: list[int], base: float, factor: float):
    assert effective(base, anchors) == pytest.approx(factor, abs=5e-7)


def test_a_tenfold_drop_of_the_learning_rate_nudges_once():
    assert feed(MetaController(ON), rates=[0.1] * 5 + [0.01] * 5) == [None] * 5 + [0.5] + [None] * 4


def test_the_nudge_of_a_drop_follows_the_anchors_trend():
    factors = feed(MetaController(ON), rates=[0.1] * 4 + [0.01], anchors=[100, 110, 120, 130, 140])
    assert factors[-1] == pytest.approx(0.416667, abs=5e-7)


@pytest.mark.parametrize(("after", "fires"), [(0.75, False), (0.7, False), (0.65, True)])
def test_a_drop_is_one_of_more_than_30_percent(after: float, fires: bool):
    factors = feed(MetaController(ON), rates=[1, 1, after, after])
    assert [factor is not None for factor in factors] == [False, False, fires, False]


def test_a_drop_in_the_second_cycle_has_no_step_before_it_and_counts():
    assert feed(MetaController(ON), rates=[1, 0.1]) == [None, 0.5]


@pytest.mark.parametrize("num_cycles", [20, 50, 200, 1000])
@pytest.mark.parametrize("warmup", [0, 5])
def test_a_cosine_or_a_line_to_zero_never_fires(num_cycles: int, warmup: int):
    start = [0.1 * (i + 1) / (warmup + 1) for i in range(warmup)]
    cosine = [0.05 * (1 + math.cos(math.pi * i / num_cycles)) for i in range(num_cycles + 1)]
    line = [0.1 * (1 - i / num_cycles) for i in range(num_cycles + 1)]
    for rates in (cosine, line):
        assert set(feed(MetaController(ON), rates=[*start, *rates, 0.0, 0.0])) == {None}


@pytest.mark.parametrize("windows", [(19, 5), (23, 2), (17, 5, 1), (100, 1)])
@pytest.mark.parametrize("num_epochs", [10, 30])
def test_a_cosine_over_uneven_windows_never_fires(windows: tuple[int, ...], num_epochs: int):
    meta, total, done = MetaController(MetaConfig()), num_epochs * sum(windows), 0
    for span in windows * num_epochs:
        done += span
        rate = 0.1 * (1 + math.cos(math.pi * done / total)) / 2
        assert meta.observe(10, rate, GOOD, Phase.STABLE, 0.01, span=span) is None


def test_a_drop_spread_over_two_falling_cycles_fires():
    assert feed(MetaController(ON), rates=[1, 1, 0.8, 0.6, 0.6]) == [None, None, None, 0.5, None]


def test_two_cycles_of_which_one_stands_still_are_no_drop_of_two():
    assert feed(MetaController(ON), rates=[1, 1, 0.8, 0.8, 0.65]) == [None] * 5


def test_a_step_that_has_fired_is_not_counted_again():
    assert feed(MetaController(ON), rates=[1, 1, 0.5, 0.45, 0.45]) == [None, None, 0.5, None, None]


def test_a_steady_exponential_decay_fires_at_its_start_only():
    assert feed(MetaController(ON), rates=[1, 1, *(0.6**i for i in range(1, 10))]) == [None, None, 0.5] + [None] * 8


def test_a_learning_rate_that_is_no_number_is_left_out():
    assert feed(MetaController(ON), rates=[1, 1, math.nan, 0.1]) == [None, None, None, 0.5]


@pytest.mark.parametrize(
    ("phase", "num", "base"), [(Phase.WARMUP, 5, 0.3), (Phase.STABLE, 3, 0.5), (Phase.MATURE, 3, 0.7)]
)
def test_sustained_divergence_nudges_by_phase_and_once_per_k_cycles(phase: Phase, num: int, base: float):
    factors = feed(MetaController(ON), verdicts=[BAD] * (2 * num), phase=phase)
    assert factors == [*[None] * (num - 1), base, *[None] * (num - 1), base]


def test_a_guards_nudge_is_a_verdict_that_is_not_stable():
    assert feed(MetaController(ON), verdicts=[BAD, NudgeDown(0.5), BAD]) == [None, None, 0.5]


def test_one_stable_verdict_ends_the_episode():
    assert feed(MetaController(ON), verdicts=[BAD, BAD, GOOD, BAD, BAD]) == [None] * 5


def test_both_causes_multiply_within_bounds():
    drop = [0.1, 0.1, 0.01]
    assert feed(MetaController(ON), rates=drop, verdicts=[BAD] * 3) == [None, None, 0.25]
    rates, verdicts = [0.1] * 4 + [0.01], [BAD] * 5
    steep = feed(MetaController(ON), rates=rates, verdicts=verdicts, anchors=[1, 1, 1, 1, 9], phase=Phase.WARMUP)
    assert steep[-1] == 0.1


def test_a_nudge_tells_its_causes():
    meta = MetaController(ON)
    feed(meta, verdicts=[BAD, BAD])
    nudge = meta.observe(100, 0.01, BAD, Phase.STABLE, 0.01)
    assert isinstance(nudge, Nudge)
    assert "learning rate fell to 0.01" in nudge.reason
    assert "3 verdicts" in nudge.reason


def test_probe_records_only():
    meta = MetaController(ON)
    assert feed(meta, rates=[0.1, 0.01, 0.01], verdicts=[BAD] * 3, phase=Phase.PROBE) == [None] * 3
    assert feed(meta, rates=[0.01], verdicts=[BAD], phase=Phase.STABLE) == [0.5]


def test_switched_off_it_never_nudges_and_still_knows_when_the_run_is_settled():
    meta = MetaController(MetaConfig(enabled=False))
    assert feed(meta, rates=[0.1, 0.1, 0.01, 0.01, 0.01], verdicts=[BAD] * 5) == [None] * 5
    assert meta.is_settled(Phase.STABLE)


def settled_after(anchors: list[int], divergences: list[float], phase: Phase = Phase.STABLE) -> bool:
    meta = MetaController(ON)
    for anchor, divergence in zip(anchors, divergences, strict=True):
        meta.observe(anchor, 0.1, GOOD, phase, divergence)
    return meta.is_settled(phase)


def test_settled_needs_full_windows_and_the_stable_phase():
    assert settled_after([100] * 5, [0.01] * 5)
    assert settled_after([100] * 5, [0.01] * 5, Phase.MATURE)
    assert not settled_after([100] * 4, [0.01] * 4)
    assert not settled_after([100] * 5, [0.01] * 5, Phase.WARMUP)


def test_settled_means_that_neither_anchor_nor_divergence_moves():
    assert settled_after([100, 100, 100, 100, 110], [0.01, 0.02, 0.02, 0.02, 0.0109])
    assert not settled_after([100, 100, 100, 100, 120], [0.01] * 5)
    assert not settled_after([100] * 5, [0.01, 0.01, 0.01, 0.01, 0.0111])
    assert not settled_after([100] * 5, [0.0, 0.0, 0.0, 0.0, 0.01])


def test_averaged_gradients_have_no_divergence_and_may_settle():
    assert settled_after([100] * 5, [0.0] * 5)


def test_a_divergence_that_is_no_number_does_not_fill_the_window():
    assert not settled_after([100] * 5, [0.01, 0.01, math.nan, 0.01, 0.01])


observations = st.tuples(
    st.integers(1, 1000),
    st.floats(0, 1),
    st.sampled_from([GOOD, BAD, NudgeDown(0.5)]),
    st.sampled_from(list(Phase)),
    st.floats(0, 1),
)


@given(st.lists(observations, max_size=12), st.lists(observations, min_size=1, max_size=12))
def test_a_restored_controller_answers_as_the_old_one(
    past: list[tuple[int, float, Verdict, Phase, float]], future: list[tuple[int, float, Verdict, Phase, float]]
):
    old, new = MetaController(ON), MetaController(ON)
    for seen in past:
        old.observe(*seen)
    new.restore(json.loads(json.dumps(old.snapshot())))
    for seen in future:
        nudge = old.observe(*seen)
        assert new.observe(*seen) == nudge
        assert nudge is None or 0.1 <= nudge.factor <= 0.95
        assert new.is_settled(seen[3]) == old.is_settled(seen[3])
