"""The port `Averager` without processes: ranks are threads that meet at a board. Needs no network and no group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from flodl.ports import AbandonedError

__all__ = ["Board", "InProcessAverager"]


class Board:
    """Where the threads of one process meet: each operation of a generation has a page, filled by all its members."""

    def __init__(self, timeout_seconds: float = 60.0) -> None:
        self.turn = threading.Condition()
        self.timeout_seconds = timeout_seconds
        self.pages: dict[tuple[int, int], dict[int, list[torch.Tensor]]] = {}


class InProcessAverager:
    """One rank's seat at a board."""

    def __init__(self, board: Board, rank: int) -> None:
        self._board = board
        self._rank = rank
        self._current = 0
        self._ranks: dict[int, tuple[int, ...]] = {}
        self._operations: dict[int, int] = {}

    def form(self, generation: int, ranks: Sequence[int]) -> None:
        """Join a generation."""
        self._announce(generation)
        self._ranks[generation] = tuple(ranks)
        self._meet(generation, [])

    def _announce(self, generation: int) -> None:
        """From now on operations of older generations end in `AbandonedError`."""
        with self._board.turn:
            self._current = max(self._current, generation)
            self._board.turn.notify_all()

    def combine(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> None:
        """Sum the members' vectors in place, in the order of ranks."""
        for place, parts in enumerate(zip(*self._meet(generation, vectors), strict=True)):
            vectors[place].copy_(torch.stack(parts).sum(dim=0))

    def launch(self, generation: int, round_number: int, vectors: Sequence[torch.Tensor]) -> Callable[[], None]:
        """Sum them at once; whether the generation has passed meanwhile is told at the end."""
        self.combine(generation, round_number, vectors)
        return lambda: self._check(generation)

    def broadcast(self, generation: int, source: int, vectors: Sequence[torch.Tensor]) -> None:
        """Everybody's vectors become those of rank `source`."""
        place = self._ranks[generation].index(source)
        for mine, theirs in zip(vectors, self._meet(generation, vectors)[place], strict=True):
            mine.copy_(theirs)

    def close(self) -> None:
        """Leave: whoever waits for an operation of this seat's generation is not kept from its own timeout."""
        self._announce(self._current + 1)

    def _meet(self, generation: int, vectors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Lay copies on the page of this rank's next operation and wait for all members' (in their order)."""
        board, ranks = self._board, self._ranks[generation]
        with board.turn:
            self._check(generation)
            number = self._operations.get(generation, 0)
            self._operations[generation] = number + 1
            page = board.pages.setdefault((generation, number), {})
            page[self._rank] = [vector.clone() for vector in vectors]
            board.turn.notify_all()
            self._wait(generation, lambda: len(page) == len(ranks))
            return [page[rank] for rank in ranks]

    def _wait(self, generation: int, full: Callable[[], bool]) -> None:
        met = self._board.turn.wait_for(lambda: full() or self._current != generation, self._board.timeout_seconds)
        self._check(generation)
        if not met:
            raise RuntimeError(f"rank {self._rank}: not all members came within {self._board.timeout_seconds:g} s")

    def _check(self, generation: int) -> None:
        if generation != self._current:
            raise AbandonedError(f"generation {generation} has passed: the present one is {self._current}")
