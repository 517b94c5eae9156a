"""The averaging formulas in plain numbers: what tensors must do, worked out where it can be followed by hand."""

from __future__ import annotations

import math

import pytest


def divergence(pre: list[float], post: list[float]) -> float:
    """||pre - post|| / ||post||, 0 where post is (nearly) nothing."""
    size = math.hypot(*post)
    return 0.0 if size <= 1e-10 else math.dist(pre, post) / size


def blend(local: float, target: float, snapshot: float, alpha: float) -> float:
    """local += a (target - snapshot)."""
    return local + alpha * (target - snapshot)


def elastic_stored(local: list[float], center: float, alpha: float, beta: float) -> tuple[list[float], float]:
    """One round against the old center, nothing trained in between: (locals, center)."""
    mean = sum(local) / len(local)
    return [blend(x, center, x, alpha) for x in local], (1 - beta) * center + beta * mean


def diloco(consensus: list[float], lr: float, mu: float) -> list[float]:
    return _outer(consensus, lambda g, v: lr * (mu * v + g), mu)


def slowmo(consensus: list[float], lr: float, mu: float) -> list[float]:
    return _outer(consensus, lambda _, v: lr * v, mu)


def _outer(consensus, step, mu):
    """Results per round; the first one is a no-op. g = previous global - consensus, v = mu v + g."""
    results, velocity = [consensus[0]], 0.0
    for value in consensus[1:]:
        gradient = results[-1] - value
        velocity = mu * velocity + gradient
        results.append(results[-1] - step(gradient, velocity))
    return results


def test_divergence_is_relative_to_the_consensus():
    assert divergence([3, 4], [3, 3]) == pytest.approx(0.235702, abs=5e-7)
    assert divergence([3, 4], [0, 0]) == 0.0


def test_elastic_averaging_with_a_stored_center():
    local, center = [1.0, 3.0], 0.0
    seen = []
    for _ in range(3):
        local, center = elastic_stored(local, center, 0.5, 0.5)
        seen.append((local, center))
    assert seen == [([0.5, 1.5], 1.0), ([0.75, 1.25], 1.0), ([0.875, 1.125], 1.0)]


def test_alpha_1_takes_the_old_center_and_makes_the_mean_the_new_one():
    assert elastic_stored([1.0, 3.0], 7.0, 1.0, 1.0) == ([7.0, 7.0], 2.0)


def test_elastic_averaging_towards_the_consensus():
    consensus = (3 * 1.0 + 1 * 3.0) / 4
    assert consensus == 1.5
    local = [blend(x, consensus, x, 0.5) for x in (1.0, 3.0)]
    assert local == [1.25, 2.25]
    consensus = (3 * local[0] + 1 * local[1]) / 4
    assert consensus == 1.5
    assert [blend(x, consensus, x, 0.5) for x in local] == [1.375, 1.875]


def test_what_was_learnt_beside_a_round_is_kept():
    assert blend(local=12.0, target=9.0, snapshot=10.0, alpha=1.0) == 11.0


def test_half_of_a_windows_work_counts_with_a_stored_center():
    def toy(mode: str) -> float:
        x, center = 0.0, 0.0
        for _ in range(12):
            x += 1.0
            if mode == "elastic":
                (x,), center = elastic_stored([x], center, 0.5, 0.5)
        return (x + center) / 2

    assert toy("elastic") == pytest.approx(6.0)


def test_diloco_steps_the_consensus_with_nesterov_momentum():
    expected = [1.0, 0.867, 0.65469, 0.597583]
    assert diloco([1.0, 0.9, 0.75, 0.70], 0.7, 0.9) == pytest.approx(expected, abs=5e-6)


def test_slowmo_steps_the_consensus_with_momentum():
    assert slowmo([1.0, 0.9, 0.75, 0.70], 1.0, 0.9) == pytest.approx([1.0, 0.9, 0.66, 0.484])
    assert slowmo([1.0, 0.5, 0.7], 0.5, 0.9) == pytest.approx([1.0, 0.75, 0.5])
