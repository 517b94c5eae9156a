"""Averaging weights."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.decide.shares import mass, shares


def averaged(values: list[float], steps: list[int], gamma: float) -> float:
    weights = shares([mass(n, gamma) for n in steps])
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


@pytest.mark.parametrize(("gamma", "expected"), [(1, 1.5), (0.5, 1.732051), (0, 2.0), (-1, 2.5)])
def test_weights_follow_the_steps_by_gamma(gamma: float, expected: float):
    assert averaged([1, 3, 100], [30, 10, 0], gamma) == pytest.approx(expected, abs=5e-7)


def test_buffers_weigh_equally_among_ranks_that_moved():
    assert averaged([1, 3, 100], [30, 10, 0], 0) == 2.0


@pytest.mark.parametrize("gamma", [-1, 0, 0.5, 1, 2])
def test_a_rank_that_did_not_move_has_no_vote(gamma: float):
    assert mass(0, gamma) == 0.0


@pytest.mark.parametrize("gamma", [-1, 0, 0.5, 1])
def test_nobody_weighs_anything_where_nobody_moved(gamma: float):
    assert shares([mass(0, gamma)] * 3) == (0.0, 0.0, 0.0)


def test_of_nobody_there_are_no_shares():
    assert shares([]) == ()


def test_gamma_1_is_the_part_of_the_count():
    assert mass(7, 1) == 7.0
    assert shares([30, 10]) == (0.75, 0.25)


@pytest.mark.parametrize("gamma", [-1000, 1000])
def test_no_gamma_makes_a_mass_infinite_or_silences_who_moved(gamma: float):
    heavy = mass(1000, gamma)
    assert 0 < heavy < math.inf
    assert sum(shares([heavy, heavy])) == 1.0


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.floats(-3, 3))
def test_shares_sum_to_one_or_nobody_moved(counts: list[int], gamma: float):
    total = math.fsum(shares([mass(n, gamma) for n in counts]))
    assert total == pytest.approx(1.0 if any(counts) else 0.0, abs=1e-12)
