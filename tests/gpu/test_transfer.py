"""What comes back from the host: it waits for its own copy, not for what the card has queued, and is never torn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from flodl.engine.averaging.flat import Flat
from flodl.engine.averaging.layout import model_layout
from flodl.engine.averaging.transfer import Transfer
from flodl.probe.gpus import count_gpus
from tests.engine.rig import run_ranks

LONG = 1_000_000_000  # cycles of a card's clock: about half a second
WRITES: dict[str, Callable[[Transfer, Flat, Flat], None]] = {
    "put": lambda transfer, values, buffers: transfer.put(values, buffers),
    "put one": lambda transfer, values, _: transfer.put(values),
    "add": lambda transfer, values, buffers: transfer.add(values, buffers),
    "put buffers": lambda transfer, _, buffers: transfer.put_buffers(buffers),
}

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")


def fill(flat: Flat, value: float) -> None:
    for part in flat.values:
        part.fill_(value)


def write_behind_batches(name: str) -> list[tuple[bool, bool, float, float]]:
    """Per turn: whether the card still worked as the call returned, whether its values are equal, a parameter's and a
    buffer's."""
    write, device = WRITES[name], torch.device("cuda", 0)
    model = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512)).to(device)
    layout = model_layout(model)
    transfer, values, buffers = Transfer(layout, device, torch.device("cpu")), Flat(layout), Flat(layout)
    found = []
    for _ in range(3):
        fill(values, 2.0)
        fill(buffers, 3.0)
        with torch.no_grad():
            for tensor in (*layout.parameters, *layout.buffers):
                tensor.fill_(1.0)
        torch.cuda._sleep(LONG)  # pyright: ignore[reportPrivateUsage]
        with torch.no_grad():
            for tensor in layout.parameters:
                tensor.mul_(10.0)
        queued = torch.cuda.Event()
        queued.record()
        write(transfer, values, buffers)
        works_on = not queued.query()
        fill(values, -1.0)  # the host's vectors are free again
        fill(buffers, -1.0)
        torch.cuda.synchronize()
        parameter, buffer = float(layout.parameters[0].detach().flatten()[0]), float(layout.buffers[0].flatten()[0])
        is_equal = all(bool((tensor == parameter).all()) for tensor in layout.parameters)
        is_equal = is_equal and all(bool((tensor == buffer).all()) for tensor in layout.buffers)
        found.append((works_on, is_equal, parameter, buffer))
    return found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("put", (2.0, 3.0)), ("put one", (2.0, 2.0)), ("add", (12.0, 3.0)), ("put buffers", (10.0, 3.0))],
)
def test_who_adopts_does_not_wait_for_queued_batches(name: str, wanted: tuple[float, float]) -> None:
    (found,) = run_ranks(1, lambda _: write_behind_batches(name), timeout=60.0)
    assert [turn[1:] for turn in found] == [(True, *wanted)] * 3
    assert all(works_on for works_on, *_ in found[1:])  # the first one loads kernels, which may well wait for the card


def write_and_take(turns: int) -> list[bool]:
    """Whether what was written twice, and taken at once, is whole."""
    device = torch.device("cuda", 0)
    layout = model_layout(nn.Linear(2048, 2048).to(device))
    transfer, first, second = Transfer(layout, device, torch.device("cpu")), Flat(layout), Flat(layout)
    whole = []
    for turn in range(turns):
        fill(first, turn)
        fill(second, turn + 0.5)
        torch.cuda._sleep(LONG // 100)  # pyright: ignore[reportPrivateUsage]
        transfer.put(first)
        transfer.add(second, second)
        into = Flat(layout)
        transfer.take(into)
        transfer.wait()
        whole.append(all(bool((part == 2 * turn + 0.5).all()) for part in into.parameters))
    return whole


def test_what_is_written_twice_and_taken_at_once_is_whole() -> None:
    (whole,) = run_ranks(1, lambda _: write_and_take(20), timeout=60.0)
    assert whole == [True] * 20
