"""Averaging in a loop of the user's own: exact means by weight, nobody's NaN, and one start for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from flodl.decide.messages import FormGroup
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.rank_averager import RankAverager
from flodl.errors import FlodlError, NotReady, RunFailed

CPU = torch.device("cpu")


def averager_of(seat: InProcessAverager, rank: int, count: int, signs: SimpleNamespace | None = None) -> RankAverager:
    group = FormGroup(to=(rank,), generation=1, ranks=tuple(range(count)), reason="")
    return RankAverager(seat, rank, group, CPU, signs or SimpleNamespace(progress=0, activity="loop"))


def together(count: int, work: Callable[[int, RankAverager], None]) -> None:
    """`work` in every rank, each on a thread of its own."""
    board = Board(timeout_seconds=5.0)

    def one(rank: int) -> None:
        seat = InProcessAverager(board, rank)
        seat.form(1, range(count))
        work(rank, averager_of(seat, rank, count))

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
    averager = averager_of(InProcessAverager(Board(), 0), 0, 1)
    with pytest.raises(FlodlError, match="watch"):
        averager.average_parameters()
    with pytest.raises(FlodlError, match="called once"):
        averager.watch()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.ones(2, 1), r"given a tensor of shape \(2, 1\); give the torch.nn.Module whose"),
        ([line(0.0)], r"given an object of type list; unpack it: watch\(\*modules\)"),
        (line(0.0).parameters(), "given an object of type generator; unpack it"),
        (nn.Linear, "given the class Linear; give a module that is made of it"),
        ("net", "given 'net'; give the torch.nn.Module"),
        (None, "given None; give the torch.nn.Module"),
        (nn.LazyLinear(2), "given an object of type LazyLinear; its lazy layers have no tensors yet"),
    ],
)
def test_what_is_no_module_is_not_watched_and_the_words_say_what_would_be(given: Any, said: str) -> None:
    averager = averager_of(InProcessAverager(Board(), 0), 0, 1)
    with pytest.raises(FlodlError, match=f"ctx.averager.watch was {said}"):
        averager.watch(line(0.0), given)


@pytest.mark.parametrize(
    ("weight", "said"),
    [(-1.0, "-1.0"), (float("inf"), "inf"), (float("nan"), "nan"), ("x", "'x'"), ("3", "'3'"), (None, "None"),
     (torch.ones(3), r"a tensor of shape \(3,\)"), (torch.tensor(-2.0), "-2.0"), ([4], "an object of type list")],
)  # fmt: skip
def test_weights_are_finite_and_no_less_than_nothing(weight: Any, said: str) -> None:
    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(line(0.0))
        for call in ("average_parameters", "weighted_average_gradients"):
            told = f"averager.{call}: a weight is a finite number, 0 or more, and not {said}$"
            with pytest.raises(FlodlError, match=told):
                getattr(averager, call)(weight)
        averager.average_parameters(torch.tensor(2))  # pyright: ignore[reportArgumentType]
        assert averager.rounds == 1
        with pytest.raises(RunFailed, match="no rank has a weight above 0"):
            averager.average_parameters(0.0)

    together(1, work)


def test_gradients_that_nobody_has_finite_are_nan_on_all_ranks_and_a_scaler_skips_the_step() -> None:
    models = [line(1.0) for _ in range(3)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(models[rank])
        models[rank].weight.grad = torch.full((1, 2), float("inf") if rank else 1.0)
        averager.weighted_average_gradients(counts=rank)  # who has finite ones had no samples
        assert bool(models[rank].weight.grad.isnan().all())
        optimizer, scaler = torch.optim.SGD(models[rank].parameters(), lr=1.0), torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)
        assert models[rank].weight.tolist() == [[1.0, 1.0]]
        models[rank].weight.grad.fill_(float(rank))
        averager.weighted_average_gradients(counts=rank)
        assert models[rank].weight.grad.tolist() == [[pytest.approx(5 / 3)] * 2]

    together(3, work)


def test_complex_parameters_and_their_gradients_keep_their_imaginary_part() -> None:
    class Turn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.ones(2, dtype=torch.complex64))

    models = [Turn() for _ in range(2)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(models[rank])
        with torch.no_grad():
            models[rank].by.fill_(complex(rank, 4.0 * rank))
        averager.average_parameters()
        models[rank].by.grad = torch.full((2,), complex(1.0, -2.0 * rank)).conj()
        averager.weighted_average_gradients(counts=1)

    together(2, work)
    for model in models:
        assert model.by.tolist() == [0.5 + 2j] * 2
        assert model.by.grad is not None
        assert model.by.grad.tolist() == [1 + 1j] * 2


def test_a_large_mean_and_small_floats_leave_a_variance_its_digits_and_shared_buffers_count_once() -> None:
    norms = [nn.BatchNorm1d(1) for _ in range(2)]
    halves = [nn.BatchNorm1d(1).half() for _ in range(2)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(norms[rank], halves[rank], nn.Sequential(norms[rank]))
        norms[rank].running_mean.fill_(5000.0 + 2 * rank)
        norms[rank].running_var.fill_(0.001)
        halves[rank].running_mean.fill_(300.0)  # its square is beyond float16
        averager.average_buffers()
        assert averager.rounds == 1

    together(2, work)
    assert [(float(n.running_mean), float(n.running_var)) for n in norms] == [(5001.0, pytest.approx(1.001))] * 2
    assert [(float(n.running_mean), float(n.running_var)) for n in halves] == [(300.0, 1.0)] * 2


def test_buffers_that_nobody_has_finite_stay_and_else_all_adopt_the_finite_ones() -> None:
    norms = [nn.BatchNorm1d(1) for _ in range(2)]

    def work(rank: int, averager: RankAverager) -> None:
        averager.watch(norms[rank])
        norms[rank].running_mean.fill_(2.0)
        norms[rank].running_var.fill_(float("inf"))
        averager.average_buffers()
        assert (float(norms[rank].running_mean), float(norms[rank].running_var)) == (2.0, float("inf"))
        norms[rank].running_mean.fill_(7.0 * rank)
        if rank:
            norms[rank].running_var.fill_(3.0)
        averager.average_buffers()

    together(2, work)
    assert [(float(n.running_mean), float(n.running_var)) for n in norms] == [(7.0, 3.0)] * 2


def test_other_modules_other_data_and_another_call_are_told_with_the_rank_that_differs() -> None:
    def work(rank: int, averager: RankAverager) -> None:
        with pytest.raises(NotReady, match=r"watch.*: the models' tensors differ: rank 1 is not as rank 0; build"):
            averager.watch(nn.Linear(2, 3 if rank == 1 else 2))
        averager.compare("ctx.loader", "80 a", "the data differ", "copy them")
        with pytest.raises(NotReady, match=r"ctx.loader: the data differ: rank 0 is not as rank 1; copy them"):
            averager.compare("ctx.loader", "80 a" if rank else "81 a", "the data differ", "copy them")
        with pytest.raises(NotReady, match=r"call \d: another call was made: rank 1, rank 2 are not as rank 0"):
            averager.compare(f"call {rank}", "", "", "")

    together(3, work)


def test_a_rank_that_makes_fewer_calls_than_others_is_told_to_those_that_wait_for_it() -> None:
    board = Board(timeout_seconds=0.2)
    seats = [InProcessAverager(board, rank) for rank in range(2)]

    def work(rank: int) -> None:
        seats[rank].form(1, range(2))
        averager = averager_of(seats[rank], rank, 2)
        averager.watch(line(0.0))
        if rank:
            with pytest.raises(RunFailed, match="has left its loop after fewer calls"):
                averager.average_parameters()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, rank) for rank in range(2)]:
            done.result(20.0)


def test_a_rank_in_an_averaging_says_so_and_has_come_further_after_it() -> None:
    signs = SimpleNamespace(progress=0, activity="loop")
    seen: list[str] = []

    class Looking(InProcessAverager):
        def combine(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> None:
            seen.append(signs.activity)
            super().combine(generation, round_number, vectors)

    seat = Looking(Board(), 0)
    seat.form(1, [0])
    averager = averager_of(seat, 0, 1, signs)
    averager.watch(line(0.0))
    before = signs.progress
    averager.average_parameters()
    assert seen == ["average"] * 2
    assert (signs.activity, signs.progress) == ("loop", before + 1)
