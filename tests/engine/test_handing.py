"""What a rank that comes back is handed: all that a bundle would hold, piece by piece; bystanders keep nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from flodl.decide.messages import FormGroup
from flodl.engine import parcel
from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.inprocess import Board, InProcessAverager
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.averaging.rule import Rule
from flodl.engine.bundle import TrainingState
from flodl.engine.handing import Handing
from flodl.engine.resuming import Resuming
from flodl.engine.rounds import Rounds
from flodl.errors import FlodlError

SOURCE, BYSTANDER, NEWCOMER = 0, 1, 2


class Trained:
    """A rank's parts. steps: that it has taken."""

    def __init__(self, seed: int, steps: int, make: Callable[..., Optimizer], kind: Callable[..., Rule]) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Linear(40, 3))
        self.optimizer = make(self.model.parameters())
        self.rule = kind(self.model, self.optimizer)
        self.rule.start()
        for _ in range(steps):
            self.model(torch.randn(8, 30)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.rule.start()
        for flat in self.rule.standing().outer.values():
            flat.parameters[0].add_(float(seed))  # a center is no copy of the consensus

    @property
    def state(self) -> TrainingState:
        return TrainingState(self.model, self.optimizer, self.rule)

    def bytes(self) -> list[bytes]:
        """Everything, as a bundle has it."""
        snapshot = self.state.capture().freeze()
        members = [b"".join(snapshot.chunks(kind)) for kind in snapshot.kinds]
        return [*members, json.dumps(snapshot.plain, sort_keys=True).encode()]


def hand_on(ranks: list[Trained], trouble: str = "") -> list[list[torch.Tensor]]:
    """All take part, each on a thread of its own; what each was left with."""
    board, left = Board(20.0), [[] for _ in ranks]

    def work(rank: int) -> None:
        averager, part = InProcessAverager(board, rank), Handing(ranks[rank].state, torch.device("cpu"))
        averager.form(7, tuple(range(len(ranks))))
        mine = part.capture() if rank == SOURCE else None
        left[rank] = part.spread(
            averager, 7, SOURCE, FlodlError(trouble) if trouble and mine else mine, wanted=rank == NEWCOMER
        )

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    return left


@pytest.mark.parametrize("piece_bytes", [1000, 32 << 20])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True), ParameterRule),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), GradientRule),
        (lambda p: torch.optim.SGD(p, lr=0.1), lambda m, o: ElasticRule(m, o, alpha=0.5)),
    ],
)
def test_a_newcomer_holds_what_the_source_holds_and_bystanders_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., Optimizer],
    kind: Callable[..., Rule],
    piece_bytes: int,
) -> None:
    monkeypatch.setattr(parcel, "PIECE_BYTES", piece_bytes)
    ranks = [Trained(rank, steps, make, kind) for rank, steps in enumerate((3, 2, 0))]
    before = [rank.bytes() for rank in ranks]
    left = hand_on(ranks)
    assert [len(parts) for parts in left] == [0, 0, 2]
    Handing(ranks[NEWCOMER].state, torch.device("cpu")).adopt(*left[NEWCOMER])
    after = [rank.bytes() for rank in ranks]
    assert after[NEWCOMER] == before[SOURCE] != before[NEWCOMER]
    assert after[:NEWCOMER] == before[:NEWCOMER]


def test_a_bundle_that_a_run_goes_on_from_travels_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "PIECE_BYTES", 1000)
    saved, *ranks = (Trained(seed, seed, lambda p: torch.optim.AdamW(p, lr=0.01), ParameterRule) for seed in range(3))
    snapshot = saved.state.capture().freeze()
    stored = {f"r7.{kind}": b"".join(snapshot.chunks(kind)) for kind in snapshot.kinds}
    stored["r7.plain"] = json.dumps(snapshot.plain).encode()

    class Link:
        def download(self, name: str) -> bytearray:
            return bytearray(stored.get(name, b""))

    board, sizes = Board(20.0), list[int]()
    order = FormGroup(to=(0, 1), generation=1, ranks=(0, 1), source=0, bundle=7, reason="test")
    everybody = [
        Rounds(number, rank.model, rank.rule, Measured(board, number, sizes)) for number, rank in enumerate(ranks)
    ]
    for rank, rounds in zip(ranks, everybody, strict=True):
        rounds.resuming = Resuming(Link(), rank.state)  # pyright: ignore[reportArgumentType]
    joining = [rounds.form(order) for rounds in everybody]
    for rounds, future in zip(everybody, joining, strict=True):
        rounds.settle(order, future.result(10.0))
    assert [rank.bytes() for rank in ranks] == [saved.bytes()] * 2
    assert max(sizes) == 1000, "each has the limit of a collective for itself"


class Measured(InProcessAverager):
    """Notes what is broadcast at once, in bytes."""

    def __init__(self, board: Board, rank: int, sizes: list[int]) -> None:
        super().__init__(board, rank)
        self.sizes = sizes

    def broadcast(self, generation: int, source: int, vectors: Sequence[torch.Tensor]) -> None:
        self.sizes += [vector.nbytes for vector in vectors]
        super().broadcast(generation, source, vectors)


def test_a_source_that_cannot_hand_on_lives_and_the_newcomer_says_why() -> None:
    ranks = [Trained(rank, 1, lambda p: torch.optim.SGD(p, lr=0.1), ParameterRule) for rank in range(3)]
    left = hand_on(ranks, trouble="the optimizer keeps a lambda")
    with pytest.raises(FlodlError, match="cannot be handed on: the optimizer keeps a lambda"):
        Handing(ranks[NEWCOMER].state, torch.device("cpu")).adopt(*left[NEWCOMER])
