"""Ranks for tests: forked processes whose link is a script, meeting over a file. Torch is held to one thread."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from safetensors.torch import load

from flodl.decide.messages import Average, Finish, FormGroup, Range, Round, RunWindow
from flodl.engine.averaging.elastic import ElasticRule
from flodl.engine.averaging.gradients import GradientRule
from flodl.engine.averaging.parameters import ParameterRule
from flodl.engine.bundle import TrainingState
from flodl.engine.callbacks import Callbacks
from flodl.engine.data import Feed
from flodl.engine.edges import Parts
from flodl.engine.functions import Functions
from flodl.engine.groups import GroupAverager, gloo_group
from flodl.engine.loop import Loop
from flodl.engine.micro import Slices
from flodl.engine.orders import Orders
from flodl.engine.pace import Pace
from flodl.engine.precision import Precision
from flodl.engine.rounds import Rounds
from flodl.engine.saver import Saver
from flodl.engine.schedule import LearningRate

torch.set_num_threads(1)  # a fork after one multi-threaded op hangs at the child's next one

CPU = torch.device("cpu")
RULES = {"parameters": ParameterRule, "gradients": GradientRule, "elastic": ElasticRule}


class ScriptedLink:
    """A link whose controller is a list: orders, and between them gates that must open first.

    A gate is `After`(kind, count): that many events of the kind were sent; `Reached`(batches): that many were run; or
    any other callable that says True of the link.
    """

    def __init__(self, script: Sequence[Any], store_file: Path) -> None:
        self.progress, self.activity = 0, ""
        self.on_regroup: Callable[[int], None] | None = None
        self.sent: list[Any] = []
        self.uploads: dict[str, bytes] = {}
        self._script = list(script)
        self._store_file = store_file
        self._turn = threading.Condition()

    def send(self, event: Any) -> None:
        with self._turn:
            self.sent.append(event)
            self._turn.notify_all()

    def receive(self, timeout_seconds: float | None) -> Any:
        end = time.monotonic() + (30.0 if timeout_seconds is None else timeout_seconds)
        with self._turn:
            while not self._is_due():
                if time.monotonic() >= end:
                    assert timeout_seconds is not None, f"the script is stuck at {self._script[:1]}: {self.sent[-1:]}"
                    return None
                self._turn.wait(0.005)
            return self._script.pop(0)

    def pending(self) -> bool:
        with self._turn:
            return self._is_due()

    def store(self, generation: int) -> dist.Store:
        return dist.PrefixStore(f"g{generation}", dist.FileStore(str(self._store_file), -1))

    def upload(self, files: Iterable[tuple[str, Iterable[memoryview]]]) -> None:
        self.uploads |= {name: b"".join(chunks) for name, chunks in files}

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.sent if isinstance(event, kind)]

    def record(self) -> Record:
        """What was said, fit to travel between processes."""
        return Record(list(self.sent), dict(self.uploads), self.progress)

    def _is_due(self) -> bool:
        while self._script and callable(self._script[0]):
            if not self._script[0](self):
                return False
            self._script.pop(0)
        return bool(self._script)


@dataclass
class Record:
    """Everything that a rank sent."""

    sent: list[Any]
    uploads: dict[str, bytes]
    progress: int

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.sent if isinstance(event, kind)]


def saved(link: ScriptedLink | Record) -> dict[str, torch.Tensor]:
    """The tensors of the model that was saved last, by their names in the bundle."""
    return load([data for name, data in link.uploads.items() if name.endswith(".model")][-1])


class After:
    """The script goes on when `count` events of a kind have been sent."""

    def __init__(self, kind: type, count: int) -> None:
        self.kind, self.count = kind, count

    def __call__(self, link: ScriptedLink) -> bool:
        return len(link.told(self.kind)) >= self.count


class Reached:
    """The script goes on when `batches` batches have been run."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __call__(self, link: ScriptedLink) -> bool:
        return link.progress >= self.batches


def make_loop(
    rank: int, link: Any, *, rule: str, model: Any, optimizer: Any, step: Any, data: Any, **options: Any
) -> Loop:
    """A loop over real parts; options: batch_size, gamma, schedule, epochs, speed, seed, held, group, precision,
    slice_size, the rule's."""
    batch_size, seed = options.pop("batch_size"), options.pop("seed", 0)
    gamma, speed, held = options.pop("gamma", 1.0), options.pop("speed", 1.0), options.pop("held", None)
    schedule, epochs = options.pop("schedule", lambda progress: 1.0), options.pop("epochs", 1)
    runs_ahead, device = rule == "elastic", options.get("device", CPU)
    precision, size = Precision(options.pop("precision", "float32"), device), options.pop("slice_size", None)
    functions = options.pop("functions", Functions())
    group = options.pop("group", None) or gloo_group("127.0.0.1", 20.0)
    made = RULES[rule](model, optimizer, **options)
    averager = GroupAverager(rank, link.store, group)
    built: Any = SimpleNamespace(
        model=model, step=step, eval=held, batch_size=batch_size, slice_size=size, precision=precision,
        functions=functions,
    )  # fmt: skip
    parts = Parts(
        rank=rank,
        device=device,
        gamma=gamma,
        runs_ahead=runs_ahead,
        slices=Slices(
            model=model, step=step, optimizer=optimizer, precision=precision, device=device, seed=seed, size=size
        ),
        feed=Feed(data, batch_size=batch_size, seed=seed, num_positions=len(data), device=device),
        rate=LearningRate(optimizer, schedule, len(data) * epochs),
        pace=Pace(device, speed),
        rounds=Rounds(rank, model, made, averager, niceness=10 if runs_ahead else 0, device=options.get("flat_device")),
        callbacks=Callbacks(
            Saver(rank, link, model, TrainingState(model, optimizer, made, precision)), made, built, device
        ),
    )
    return Loop(parts, link, Orders(link, patience_seconds=5.0))


def form(members: Sequence[int], *, generation: int = 1, source: int | None = 0) -> FormGroup:
    ranks = tuple(members)
    return FormGroup(to=ranks, generation=generation, ranks=ranks, source=source, reason="test")


def window(number: int, batches: int, ranges: Sequence[tuple[int, int, int]], **fields: Any) -> RunWindow:
    """One round of a window; ranges: (epoch, start, stop)."""
    before, samples = fields.pop("before", 0), fields.pop("samples", 1)
    rounds = (Round(number, batches, before, samples),)
    dealt = tuple(Range(*piece) for piece in ranges)
    return RunWindow(
        to=(0,),
        generation=fields.pop("generation", 1),
        rounds=rounds,
        ranges=dealt,
        epoch=fields.pop("epoch", 0),
        reason="test",
        **fields,
    )


def average(number: int, masses: Sequence[float], **fields: Any) -> Average:
    return Average(
        to=(0,), generation=fields.pop("generation", 1), round=number, masses=tuple(masses), reason="test", **fields
    )


def finish(*callbacks: Any) -> Finish:
    return Finish(to=(0,), callbacks=callbacks, reason="test")


def run_ranks(count: int, work: Callable[[int], Any], *, wanted: int | None = None, timeout: float = 30.0) -> list[Any]:
    """Call `work(rank)` in `count` forked processes; what the first `wanted` (all) return, in order of ranks."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_call, args=(rank, work, answers), daemon=True) for rank in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of any thread; torch is held to one
        for process in processes:
            process.start()
    results: dict[int, Any] = {}
    try:
        while len(results) < (wanted or count):
            rank, good, value = answers.get(timeout=timeout)
            if not good and "autograd's threading" in value:
                pytest.skip("this process ran autograd beside a GPU and can fork no rank: run the folder by itself")
            assert good, f"rank {rank} failed:\n{value}"
            results[rank] = value
    except queue.Empty:
        for process in processes:
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGUSR1)  # where it hangs, on its standard error
        time.sleep(0.5)
        raise AssertionError(f"only ranks {sorted(results)} answered") from None
    finally:
        for process in processes:
            if process.is_alive() and wanted is None:
                process.join(2.0)
            if process.is_alive():
                process.kill()
                process.join()
    return [results[rank] for rank in sorted(results)]


def _call(rank: int, work: Callable[[int], Any], answers: Any) -> None:
    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        answers.put((rank, True, work(rank)))
    except BaseException:  # noqa: BLE001  told to the test
        answers.put((rank, False, traceback.format_exc()))
    answers.close()
    answers.join_thread()
    os._exit(0)  # as ranks do: destructors of groups may wait for peers that are gone


def values(model: torch.nn.Module) -> dict[str, Any]:
    """A model's parameters and buffers as numpy arrays (they travel between processes)."""
    return {name: tensor.detach().cpu().double().numpy().copy() for name, tensor in model.state_dict().items()}
