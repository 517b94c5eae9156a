"""A recurrent network over characters: embedding, GRU or LSTM, one logit per character of the vocabulary."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

__all__ = ["CharRNN"]

CELLS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}


class CharRNN(nn.Module):
    """Every block begins with an empty memory. dropout: between layers, so it needs two of them.

    Raises ValueError for a cell that is not there.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        cell: Literal["gru", "lstm"] = "gru",
        embedding: int = 64,
        hidden: int = 256,
        num_layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"cell={cell} must be one of {', '.join(CELLS)}")
        if dropout and num_layers < 2:
            raise ValueError(f"dropout={dropout} acts between layers: num_layers={num_layers} must be 2 or more")
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.rnn = CELLS[cell](embedding, hidden, num_layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(hidden, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens int64 (batch, time) -> logits (batch, time, vocab_size), each of the next token."""
        hidden, _ = self.rnn(self.embedding(tokens))
        return self.head(hidden)
