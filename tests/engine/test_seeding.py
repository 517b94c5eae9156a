"""Randomness of a batch: the same wherever and whenever it runs."""

from __future__ import annotations

import random

import numpy as np
import torch

from flodl.engine.seeding import batch_seed, seed_batch

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return float(torch.rand(1)), float(np.random.rand()), random.random()


def test_torch_numpy_and_python_draw_the_same_for_the_same_batch() -> None:
    seed_batch(3, 1, 64, CPU)
    first = draw()
    draw()
    seed_batch(3, 1, 64, CPU)
    assert draw() == first


def test_seed_epoch_and_position_each_matter() -> None:
    seeds = {batch_seed(s, e, p) for s in range(4) for e in range(4) for p in range(0, 640, 64)}
    assert len(seeds) == 160
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_stream_of_a_batch_never_changes() -> None:
    assert batch_seed(0, 0, 0) == 759540517790923586


def test_torch_and_numpy_draw_different_numbers_though_they_are_the_same_generator() -> None:
    seed_batch(3, 1, 64, CPU)
    assert int(torch.randint(2**62, ())) != int(np.random.randint(2**62))
