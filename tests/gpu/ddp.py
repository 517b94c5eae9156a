"""flodl beside torch's DistributedDataParallel on this machine's GPUs: `python -m tests.gpu.ddp`.

Numbers: nccl_sync and DDP train from one file of weights over the same batches in float32 (TF32 off, repeatable
kernels: cuDNN's faster ones differ from run to run, and a network with BatchNorm makes hundredths of that in 100
steps); what is printed is the largest difference of any parameter after 100 steps. Rates: samples/s of both sides in
bfloat16, turn by turn, data resident on the card on both sides, of all epochs but the first (there either side sets
itself up); what is printed is the median of the turns' quotients.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from flodl.datasets.python_stdlib import python_stdlib
from flodl.datasets.synthetic import synthetic
from flodl.engine.reading import permutation
from flodl.models.gpt_nano import GPT
from flodl.models.resnet import ResNet
from flodl.probe.gpus import count_gpus
from flodl.record.metrics import read_metrics
from flodl.steps.classification import Classification
from flodl.steps.language_model import LanguageModel
from tests.gpu.place import headline

WORLD = count_gpus()
LR, MOMENTUM, SAMPLES = 0.01, 0.9, 102_400
COMMON = (
    *("elche=nccl_sync", "elche.max_batch_diff=0", "cluster=local", "scheduler=constant", f"optim.lr={LR}"),
    *(f"optim.momentum={MOMENTUM}", "optim.weight_decay=0", "optim.nesterov=false", "eval=off"),
    *("trainer.compile=false", "trusted_targets=[tests.gpu]"),
)
JOBS = {
    "resnet20": ("model=resnet20", "dataset=synthetic", f"dataset.num_samples={SAMPLES}",
                 "dataset.image_shape=[3,32,32]"),
    "gpt_nano": ("model=gpt_nano", "dataset=python_stdlib", "step=language_model"),
}  # fmt: skip
BATCH = {"resnet20": 512, "gpt_nano": 1024}  # keep a card busy: below, the host's launching is what is timed
EPOCHS = {"resnet20": 6, "gpt_nano": 12}


class Exact(Classification):
    """The step without TF32, so that both sides round alike."""

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        torch.backends.cudnn.allow_tf32 = False
        return super().__call__(model, batch)


def parts(name: str) -> tuple[nn.Module, Any, tuple[Tensor, ...]]:
    """Model, step and training tensors of a job."""
    if name == "gpt_nano":
        splits: Any = python_stdlib()
        return GPT(vocab_size=98, block_size=128), LanguageModel(), splits.train.tensors
    splits = synthetic(image_shape=(3, 32, 32), num_samples=SAMPLES)
    return ResNet(in_shape=(3, 32, 32), num_classes=10), Classification(), splits.train.tensors


def ddp(rank: int, name: str, weights: str, epochs: int, precision: torch.dtype, out: str) -> None:
    """One rank of DDP over the batches that nccl_sync's rank has. Writes seconds and samples (without the first epoch's
    where there are others) and parameters to `out`."""
    torch.cuda.set_device(rank)
    torch.backends.cudnn.allow_tf32 = precision != torch.float32
    torch.use_deterministic_algorithms(precision == torch.float32)
    dist.init_process_group("nccl", init_method=f"file://{out}.store", rank=rank, world_size=WORLD)
    bare, step, tensors = parts(name)
    bare.load_state_dict(safetensors.torch.load_file(weights), strict=False)  # tied tensors lie there once
    model = DistributedDataParallel(bare.to("cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    data = tuple(column.to("cuda") for column in tensors)
    size = BATCH[name]
    batches = len(data[0]) // (WORLD * size)
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    began, counted = 0.0, max(1, epochs - 1)
    for epoch in range(epochs):
        if epoch <= epochs - counted:
            dist.barrier()
            torch.cuda.synchronize()
            began = time.perf_counter()
        order = torch.from_numpy(permutation(0, epoch, len(data[0]))).to("cuda")[rank * batches * size :]
        for i in range(batches):
            chosen = order[i * size : (i + 1) * size]
            batch: Any = tuple(column.index_select(0, chosen) for column in data)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
                loss = step(model, batch)
            loss.backward()
            optimizer.step()
            total += loss.detach().double() * size
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    assert torch.isfinite(total)
    if rank == 0:
        Path(f"{out}.json").write_text(json.dumps([seconds, counted * batches * size * WORLD]))
        safetensors.torch.save_model(model.module, f"{out}.safetensors")
    dist.destroy_process_group()


def ddp_run(name: str, weights: Path, epochs: int, precision: torch.dtype) -> tuple[float, dict[str, Tensor]]:
    """Samples/s and final tensors."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        mp.spawn(ddp, args=(name, str(weights), epochs, precision, out), nprocs=WORLD)
        seconds, samples = json.loads(Path(f"{out}.json").read_text())
        return samples / seconds, safetensors.torch.load_file(f"{out}.safetensors")


def flodl_run(name: str, *overrides: str) -> tuple[float, dict[str, Tensor]]:
    """Samples/s and final tensors."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*COMMON, *JOBS[name], f"trainer.batch_size={BATCH[name]}", *overrides, f"hydra.run.dir={folder}/run"]
        done = subprocess.run([sys.executable, "-m", "flodl", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
        run = Path(folder, "run")
        told = read_metrics(run / "metrics.jsonl")
        counted = told[1:] or told
        rate = sum(epoch.samples for epoch in counted) / sum(epoch.wall_seconds for epoch in counted)
        return rate, safetensors.torch.load_file(run / "checkpoints" / "weights.safetensors")


def begin(name: str, folder: Path) -> Path:
    """The weights with which both sides start."""
    torch.manual_seed(0)
    path = folder / f"{name}.safetensors"
    safetensors.torch.save_model(parts(name)[0], str(path))
    return path


def numbers(weights: Path) -> float:
    """Largest difference of a parameter after 100 steps of resnet20."""
    steps = SAMPLES // (WORLD * BATCH["resnet20"])
    epochs = -(-100 // steps)
    _, theirs = ddp_run("resnet20", weights, epochs, torch.float32)
    _, ours = flodl_run("resnet20", f"trainer.num_epochs={epochs}", "trainer.precision=float32",
                        "trainer.deterministic=true", "step._target_=tests.gpu.ddp.Exact",
                        f"model.init_from={weights}")  # fmt: skip
    names = [name for name, _ in parts("resnet20")[0].named_parameters()]
    largest = max(float((ours[name] - theirs[name]).abs().max()) for name in names)
    moved = max(float((theirs[n] - safetensors.torch.load_file(weights)[n]).abs().max()) for n in names)
    print(f"resnet20, float32, {steps * epochs} steps: largest difference {largest:.2e} "
          f"(the parameters moved by up to {moved:.2e})", flush=True)  # fmt: skip
    return largest


def rates(name: str, weights: Path, turns: int) -> None:
    """Print the quotients of a job's rates."""
    quotients: list[float] = []
    for turn in range(turns):
        pair: dict[str, float] = {}
        for side in ("flodl", "ddp") if turn % 2 else ("ddp", "flodl"):
            if side == "ddp":
                pair[side], _ = ddp_run(name, weights, EPOCHS[name], torch.bfloat16)
            else:
                more = (f"trainer.num_epochs={EPOCHS[name]}", "trainer.precision=bfloat16")
                pair[side], _ = flodl_run(name, *more)
        quotients.append(pair["flodl"] / pair["ddp"])
        print(f"{name}: flodl {pair['flodl']:.0f}, DDP {pair['ddp']:.0f} samples/s", flush=True)
    told = ", ".join(f"{q:.3f}" for q in quotients)
    print(f"{name}, bfloat16, {WORLD} GPUs: flodl / DDP: median {median(quotients):.3f} of {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--rates-only", action="store_true", help="leave out the comparison of numbers")
    args = parser.parse_args()
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what repeatable products of matrices need
    if WORLD < 2:
        raise SystemExit(f"two GPUs are needed; {WORLD} here")
    print(headline("tests.gpu.ddp"), flush=True)
    with tempfile.TemporaryDirectory(dir=".") as folder:  # model.init_from takes files of the project alone
        weights = {name: begin(name, Path(folder).resolve()) for name in {"resnet20", *args.jobs}}
        if not args.rates_only:
            numbers(weights["resnet20"])
        for name in args.jobs:
            rates(name, weights[name], args.turns)


if __name__ == "__main__":
    main()
