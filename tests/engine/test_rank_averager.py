"""Averaging in a loop of the user's own: exact means by weight, nobody's NaN, and one start for all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.rank_averager import RankAverager
from flodl.errors import FlodlError, RunFailed

CPU = torch.device("cpu")


def together(count: int, work: Callable[[int, RankAverager], None]) -> None:
    """`work` in every rank, each on a thread of its own."""
    board = Board(timeout_seconds=5.0)

    def one(rank: int) -> None:
        seat = InProcessAverager(board, rank)
        seat.form(1, range(count))
        work(rank, RankAverager(seat, range(count), CPU))

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(one, rank) for rank in range(count)]:
            done.result(20.0)


def line(value: float) -> nn.Linear:
    made = nn.Linear(2, 1)
    nn.init.constant_(made.weight, value)
    nn.init.constant_(made.bias, value)
    return made


def test_all_begin_with_what_rank_0_has_and_parameters_become_their_weighted_mean() -> None:
    models = [line(float(rank)) for rank in range(3)]
    double = [nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in range(3)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(models[rank], double[rank])
        assert float(models[rank].bias.detach()) == 0.0
        with torch.no_grad():
            models[rank].weight.fill_(float(rank))
            double[rank].weight.fill_(1.0 + rank * 1e-12)
        averager.average_parameters(weight=float(rank))
        assert averager.rounds == 1

    together(3, work)
    for model, other in zip(models, double, strict=True):
        assert model.weight.tolist() == [[pytest.approx(5 / 3), pytest.approx(5 / 3)]]
        assert float(other.weight.detach()) == pytest.approx(1.0 + 5 / 3 * 1e-12, abs=1e-15)


def test_gradients_are_the_mean_over_all_samples_whoever_had_how_many() -> None:
    models = [nn.ModuleList([line(0.0), line(0.0), line(0.0)]) for _ in range(2)]

    def work(rank: int, averager: RankAverager) -> None:
        used, once, _ = models[rank]
        averager.watch(models[rank])
        used.weight.grad = torch.full((1, 2), float(1 + rank))
        if rank == 1:
            once.bias.grad = torch.ones(1)
        averager.weighted_average_gradients(counts=30 if rank else 10)

    together(2, work)
    for model in models:
        assert model[0].weight.grad.tolist() == [[1.75, 1.75]]
        assert model[1].bias.grad.tolist() == [0.75]
        assert [p.grad for p in model[2].parameters()] == [None, None]


def test_variances_are_pooled_and_counters_stay_local() -> None:
    norms = [nn.BatchNorm1d(1) for _ in range(2)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(norms[rank])
        norms[rank].running_mean.fill_(4.0 * rank)
        norms[rank].running_var.fill_(1.0)
        norms[rank].num_batches_tracked.fill_(rank)
        averager.average_buffers()

    together(2, work)
    assert [(float(n.running_mean), float(n.running_var)) for n in norms] == [(2.0, 5.0)] * 2
    assert [int(n.num_batches_tracked) for n in norms] == [0, 1]


def test_a_rank_that_is_not_finite_is_left_out_and_adopts_the_others() -> None:
    models = [line(1.0) for _ in range(3)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(models[rank])
        with torch.no_grad():
            models[rank].weight.fill_(float("nan") if rank == 1 else float(rank))
        averager.average_parameters()
        with torch.no_grad():
            models[rank].bias.fill_(float("inf"))
        with pytest.raises(RunFailed, match="nothing to average"):
            averager.average_parameters()

    together(3, work)
    assert [model.weight.tolist() for model in models] == [[[1.0, 1.0]]] * 3


def test_what_cannot_be_meant_is_refused_in_words() -> None:
    averager = RankAverager(InProcessAverager(Board(), 0), [0], CPU)
    with pytest.raises(FlodlError, match="watch"):
        averager.average_parameters()
    with pytest.raises(FlodlError, match="called once"):
        averager.watch()


def test_weights_are_no_less_than_nothing() -> None:
    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(line(0.0))
        with pytest.raises(FlodlError, match="a weight is 0 or more"):
            averager.average_parameters(weight=-1.0)

    together(1, work)
