"""One section of docs/benchmark.md, run: `python -m tests.bench.arms FOLDER --model mlp --dataset digits`.

Solo on the fast rank, torch DDP, and every arm that CPU ranks can run, each with every seed, at equal epochs. Whatever
is there already is not run again; a folder with other seeds continues the section. `tests.bench.document` makes the
page of such folders.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flodl.probe.gpus import see_gpus
from tests.bench.section import ARMS, DDP, SHARED_GPU, SOLO, SPEEDS, DdpRun, Section
from tests.engine.live import ROOT, found_in


def run(folder: Path, section: Section, arms: Sequence[str]) -> None:
    """Run what is missing of a section."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "section.json").write_bytes(msgspec.json.format(msgspec.json.encode(section)))
    seeds = "trainer.seed=" + ",".join(map(str, section.seeds))
    for name in (SOLO, *(arm for arm in arms if arm != DDP)):
        own = (*section.overrides, *(section.alone if name == SOLO else ARMS[name]))
        cores = max(1, section.cores // len(SPEEDS[section.cluster])) if name == SOLO else section.cores
        place = f"hydra.sweep.dir={(folder / name).absolute()}"
        _flodl((*own, seeds, place, "hydra.launcher.skip_completed=true"), cores, bool(section.gpu))
    if DDP not in arms or section.gpu:  # torch DDP has no second GPU there
        return
    for number, seed in enumerate(section.seeds):
        out = folder / DDP / f"{seed}.json"
        if not out.exists():
            from torch.multiprocessing.spawn import ProcessRaisedException

            from tests.bench.ddp_training import train  # torch, which no sweep needs

            try:
                found = train(folder / SOLO / str(number) / "spec.json", SPEEDS[section.cluster])
            except ProcessRaisedException as error:  # its scaled learning rate may be too much for it
                print(f"ddp, seed {seed}: {str(error).strip().splitlines()[-1]}", flush=True)
                found = DdpRun(seed=seed, speeds=SPEEDS[section.cluster], samples=0, epochs=())
            out.parent.mkdir(exist_ok=True)
            out.write_bytes(msgspec.json.format(msgspec.json.encode(found)))


def _flodl(words: Sequence[str], cores: int, gpu: bool) -> None:
    """A sweep on so many cores: a rank alone gets what it has beside the others, and torch one thread for each."""
    env = {**os.environ, "PYTHONPATH": found_in(ROOT, ROOT / "launch")}
    if not gpu:
        env["CUDA_VISIBLE_DEVICES"] = ""
    few = sorted(os.sched_getaffinity(0))[:cores]
    command = ["taskset", "-c", ",".join(map(str, few)), sys.executable, "-m", "flodl", "-m", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _gpu(cluster: str) -> str:
    """The name of the GPU that the ranks share."""
    if cluster != SHARED_GPU:
        return ""
    if not (gpus := see_gpus().gpus):
        raise SystemExit(f"--cluster {SHARED_GPU} needs a GPU; none is lent here")
    return gpus[0].name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--cluster", default="rehearsal", choices=list(SPEEDS))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=[DDP, *ARMS], choices=[DDP, *ARMS])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an override for all of them")
    asked = parser.parse_args()
    section = Section(model=asked.model, dataset=asked.dataset, cluster=asked.cluster, epochs=asked.epochs,
                      seeds=tuple(asked.seeds), more=tuple(asked.set), cpu=_cpu(), gpu=_gpu(asked.cluster),
                      load=os.getloadavg()[0], cores=len(os.sched_getaffinity(0)))  # fmt: skip
    run(asked.folder, section, asked.arms)


if __name__ == "__main__":
    main()
