"""From the command to the first training step on three hosts: `python -m tests.bench.hosts_start`.

Each turn starts the same model twice on the hosts of a lab (tests/lab): through flodl's command, and by hand, with one
torchrun over ssh on each host, which is what one would type without flodl. Both are timed from the moment the
command is given to the moment the last rank enters its first training step (the hosts of a lab share one clock).
Prints the median of the turns' quotients. A side that stands still is ended after its own limit, with its name and its
last lines. `--sweep` times the arms of a sweep instead: command to first step of the first, and of the second from the
first one's end.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from flodl.datasets.digits import digits
from flodl.models.resnet import ResNet
from flodl.steps.classification import Classification
from tests.engine.live import ROOT, found_in
from tests.lab.host import PYTHON
from tests.lab.lab import Lab

MARK = re.compile(r"first step at ([0-9.]+)")
PORT = 29531
SIDE_SECONDS = 90  # for one run of one side; it takes about a tenth of that
SWEEP_SECONDS = 180
LAST_LINES = 20
JOB = [
    "elche=cpu_cadence",
    "model=resnet20",
    "dataset=digits",
    "trusted_targets=[tests.bench]",
    "step._target_=tests.bench.hosts_start.FirstStep",
    "trainer.num_epochs=1",
    "trainer.limit_batches=12",
    "eval=off",
]


class FirstStep(Classification):
    """The classification step; the first call says when it came."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing=label_smoothing)
        self.is_said = False

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if not self.is_said:
            self.is_said = True
            print(f"first step at {time.monotonic()}", flush=True)
        return super().__call__(model, batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--by-hand", action="store_true", help="be one rank of torchrun (internal)")
    args = parser.parse_args()
    if args.by_hand:
        by_hand()
        return
    with Lab(3) as lab, tempfile.TemporaryDirectory() as folder:
        desk = Path(folder)
        (desk / "conf" / "cluster").mkdir(parents=True)
        lab.write_cluster(desk / "conf" / "cluster" / "lab.yaml", _cluster(lab))
        (_sweeps if args.sweep else _starts)(lab, desk, args.turns)


def _starts(lab: Lab, desk: Path, turns: int) -> None:
    quotients = []
    for turn in range(turns):
        first, second = (flodl, torchrun) if turn % 2 == 0 else (torchrun, flodl)
        seconds = {first: first(lab, desk), second: second(lab, desk)}
        quotients.append(seconds[flodl] / seconds[torchrun])
        print(f"flodl {seconds[flodl]:.2f} s, torchrun {seconds[torchrun]:.2f} s", flush=True)
    print(f"flodl / torchrun: median {median(quotients):.3f} of {', '.join(f'{q:.3f}' for q in quotients)}")


def _sweeps(_: Lab, desk: Path, turns: int) -> None:
    quotients = []
    for turn in range(turns):
        folder = desk / f"sweep{turn}"
        began = time.monotonic()
        argv = [*_command("-m"), f"hydra.sweep.dir={folder}", "trainer.seed=0,1"]
        _carry_out({"flodl's sweep": argv}, desk, SWEEP_SECONDS)
        first, second = (_first_steps(folder / arm) for arm in ("0", "1"))
        ended = (folder / "0" / "result.json").stat().st_mtime - time.time() + time.monotonic()
        quotients.append((second - ended) / (first - began))
        print(f"first arm {first - began:.2f} s, second {second - ended:.2f} s", flush=True)
    print(f"second / first: median {median(quotients):.3f} of {', '.join(f'{q:.3f}' for q in quotients)}")


def flodl(_: Lab, desk: Path) -> float:
    """Seconds from the command to the last rank's first step."""
    with tempfile.TemporaryDirectory(dir=desk) as folder:
        began = time.monotonic()
        _carry_out({"flodl": [*_command(), f"hydra.run.dir={folder}/run"]}, desk, SIDE_SECONDS)
        return _first_steps(Path(folder, "run")) - began


def torchrun(lab: Lab, desk: Path) -> float:
    """The same by hand: one ssh and one torchrun for each host, all at once."""
    master = lab["node-a"].address
    began = time.monotonic()
    nodes = enumerate(("node-a", "node-b", "node-c"))
    calls = {f"torchrun on {name}": _ssh(lab, name, rank, master) for rank, name in nodes}
    said = _carry_out(calls, desk, SIDE_SECONDS)
    return max(_marked(text) for text in said) - began


def by_hand() -> None:
    """One rank: what a person writes for torchrun, with the same model, data and batch size."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(ResNet(in_shape=(1, 8, 8), num_classes=10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    columns, step = digits().train.tensors, FirstStep()
    for start in range(0, 4 * 64, 64):
        optimizer.zero_grad()
        loss = step(model, tuple(column[start : start + 64] for column in columns))
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


def _ssh(lab: Lab, name: str, rank: int, master: str) -> list[str]:
    call = f"cd {ROOT} && GLOO_SOCKET_IFNAME=lab0 OMP_NUM_THREADS=1 {PYTHON} -m torch.distributed.run"
    call += f" --nnodes 3 --nproc-per-node 1 --node-rank {rank} --master-addr {master} --master-port {PORT}"
    call += " -m tests.bench.hosts_start --by-hand"
    return ["ssh", "-F", str(lab.folder / "ssh_config"), name, call]


def _cluster(lab: Lab) -> dict[str, Any]:
    """The lab's cluster with one rank a host, in this checkout: the step above has to be found there."""
    cluster = lab.cluster()
    for worker in cluster["workers"]:
        worker.update(path=str(ROOT), local_devices="cpu:1")
    return cluster


def _command(*first: str) -> list[str]:
    return [sys.executable, "-m", "flodl", *first, "cluster=lab", *JOB]


def _carry_out(calls: dict[str, list[str]], desk: Path, seconds: float) -> list[str]:
    """What each of these commands said, all at once. Ends the bench, by name and last lines, where one fails or stays.

    Into files, and as leaders of sessions: neither a pipe that a grandchild holds nor this terminal can hold us up.
    """
    env = os.environ | {"PYTHONPATH": found_in(ROOT)}
    end = time.monotonic() + seconds
    started: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory(dir=desk) as folder:
        try:
            for name, argv in calls.items():
                with Path(folder, name).open("wb") as output:
                    started[name] = subprocess.Popen(argv, cwd=desk, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                                     stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
            codes = {name: _code(process, end) for name, process in started.items()}
        finally:
            for process in started.values():
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        said = {name: Path(folder, name).read_text(errors="replace") for name in calls}
    if any(codes.values()):
        raise SystemExit("\n\n".join(_outcome(name, code, said[name], seconds) for name, code in codes.items()))
    return list(said.values())


def _code(process: subprocess.Popen[bytes], end: float) -> int | str:
    """How it ended; "no end" where it still runs then."""
    try:
        return process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "no end"


def _outcome(name: str, code: int | str, said: str, seconds: float) -> str:
    how = f"stood still: no end within {seconds:g} s" if code == "no end" else f"ended with {code}"
    return "\n".join([f"{name} {how}. Its last lines:", *(f"  {line}" for line in said.splitlines()[-LAST_LINES:])])


def _first_steps(run: Path) -> float:
    """When the last rank of a run entered its first step."""
    return max(_marked(log.read_text()) for log in (run / "ranks").glob("*.log"))


def _marked(text: str) -> float:
    found = MARK.search(text)
    if found is None:
        raise SystemExit(f"no first step in:\n{text}")
    return float(found[1])


if __name__ == "__main__":
    main()
