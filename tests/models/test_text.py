"""The shipped models of text see only what is before them, and learn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from flodl.models.char_rnn import CharRNN
from flodl.models.gpt_nano import GPT
from flodl.steps.language_model import LanguageModel

Make = Callable[[], nn.Module]
MODELS: dict[str, Make] = {
    "gpt": lambda: GPT(vocab_size=11, block_size=16, width=32, depth=2, num_heads=4),
    "gpt untied": lambda: GPT(vocab_size=11, block_size=16, width=32, depth=2, num_heads=4, tied=False),
    "gru": lambda: CharRNN(vocab_size=11, embedding=16, hidden=32),
    "lstm": lambda: CharRNN(vocab_size=11, cell="lstm", embedding=16, hidden=32, num_layers=2, dropout=0.1),
}
TOKENS = torch.arange(24).view(2, 12) % 11


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_gives_one_logit_per_character_at_every_position(make: Make) -> None:
    assert make()(TOKENS).shape == (2, 12, 11)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_no_position_sees_what_comes_after_it(make: Make) -> None:
    model = make().eval()
    changed = TOKENS.clone()
    changed[:, 7:] = 3
    before, after = model(TOKENS), model(changed)
    assert torch.allclose(before[:, :7], after[:, :7], atol=1e-6)
    assert not torch.allclose(before[:, 7:], after[:, 7:], atol=1e-3)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_parameter_gets_a_gradient(make: Make) -> None:
    model = make()
    LanguageModel()(model, (torch.arange(32).view(2, 16) % 11, torch.arange(32).view(2, 16) % 7)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_model_learns_a_cycle_of_characters(make: Make) -> None:
    torch.manual_seed(0)
    model, step = make(), LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        loss = step(model, (TOKENS, (TOKENS + 1) % 11))
        loss.backward()
        optimizer.step()
    model.eval()
    assert step.metrics(model, (TOKENS, (TOKENS + 1) % 11))["accuracy"] == 1.0


def test_a_tied_head_is_the_embedding() -> None:
    model = GPT(vocab_size=11, block_size=16, width=32, depth=1)
    assert model.head.weight is model.tokens.weight
    untied = GPT(vocab_size=11, block_size=16, width=32, depth=1, tied=False)
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in model.parameters()) == 11 * 32


def test_a_fresh_gpt_knows_nothing() -> None:
    torch.manual_seed(0)
    loss = LanguageModel()(GPT(vocab_size=11, block_size=16, tied=False), (TOKENS, TOKENS))
    assert abs(loss.item() - torch.log(torch.tensor(11.0)).item()) < 0.1


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="width=30 must be a multiple of num_heads=4"):
        GPT(vocab_size=11, block_size=16, width=30)
    with pytest.raises(ValueError, match="17 positions are more than block_size=16"):
        GPT(vocab_size=11, block_size=16)(torch.zeros(1, 17, dtype=torch.int64))
    with pytest.raises(ValueError, match="cell=rnn must be one of gru, lstm"):
        CharRNN(vocab_size=11, cell="rnn")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dropout=0.5 acts between layers: num_layers=1 must be 2 or more"):
        CharRNN(vocab_size=11, dropout=0.5)
