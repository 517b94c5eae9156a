"""What fetching costs against data that lies ready: `python -m tests.bench.feeding`.

The same samples and steps on two unequal ranks: once kept on the device, once read by two loader processes per rank
from a data set that takes 5 ms for every batch, like a disk. Paced: the forward pass of every step is filled up to
20 ms by a sleep, and the second rank has a speed of 0.4, so that two cores are not the limit. Prints samples/s of both,
the median quotient of runs that take turns, and for how much of their compute the ranks waited for data.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from torch import Tensor, nn
from torch.utils.data import TensorDataset

from flodl.datasets.splits import Splits
from flodl.datasets.synthetic import synthetic
from flodl.steps.classification import Classification
from tests.bench.balance import BATCH, flodl

SPEEDS = (1.0, 0.4)
DISK_SECONDS = 0.005
STEP_SECONDS = 0.020
JOB = ("trusted_targets=[tests.bench]", "step._target_=tests.bench.feeding.Paced", "model.hidden=[64]")
KEPT = ("loader.resident=true",)
FETCHED = ("loader.resident=false", "loader.num_workers=2", "dataset._target_=tests.bench.feeding.disk")


class Paced(Classification):
    """A classification step that takes as long as a larger model's would."""

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        began = time.perf_counter()
        loss = super().__call__(model, batch)
        time.sleep(max(0.0, began + STEP_SECONDS - time.perf_counter()))
        return loss


class Disk:
    """Samples that lie elsewhere: one in `BATCH` takes as long as a whole batch shall."""

    def __init__(self, samples: TensorDataset) -> None:
        self.samples = samples
        self.reads = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        if self.reads % BATCH == 0:
            time.sleep(DISK_SECONDS)
        return self.samples[index]


def disk(**arguments: Any) -> Splits:
    """The synthetic data set, read as from a disk."""
    return Splits(train=Disk(synthetic(**arguments).train))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=300, help="batches of an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--modes", nargs="+", default=["cpu_cadence", "cpu_async", "cpu_sync"])
    parser.add_argument("--more", nargs="+", default=[], help="further overrides, for both sides")
    args = parser.parse_args()
    for mode in args.modes:
        pairs = [[_run(mode, args, more) for more in (KEPT, FETCHED)] for _ in range(args.repeats)]
        quotients = [fetched["samples_per_second"] / kept["samples_per_second"] for kept, fetched in pairs]
        for kept, fetched in pairs:
            rates = f"kept {kept['samples_per_second']:8.1f}  fetched {fetched['samples_per_second']:8.1f} samples/s"
            print(f"{mode:<12} {rates}  waited for data {_waited(kept):6.2%} and {_waited(fetched):6.2%} of compute")
        print(f"{mode:<12} fetched / kept: median {statistics.median(quotients):.3f} of "
              f"{', '.join(f'{quotient:.3f}' for quotient in quotients)}", flush=True)  # fmt: skip


def _run(mode: str, args: argparse.Namespace, more: tuple[str, ...]) -> Any:
    return flodl(mode, SPEEDS, args.batches * BATCH, args.epochs, *JOB, *more, *args.more)


def _waited(result: Any) -> float:
    ranks = result["per_rank"]
    return sum(rank["data_wait_seconds"] for rank in ranks) / sum(rank["compute_seconds"] for rank in ranks)


if __name__ == "__main__":
    main()
