"""The programs of docs/python.md, run as a person would: each in an empty folder, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from flodl import drive
from flodl.record.journal import read_journal
from flodl.spec.codec import load_spec
from flodl.trainer import resolved
from tests.e2e.command import command
from tests.engine.live import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
CELL = re.search(r"```python\n(# cell 1\n.*?)```", PAGE, re.DOTALL)
PROGRAMS = {match[2]: match[1] for match in re.finditer(r"```python\n(# (\w+\.py)\n.*?)```", PAGE, re.DOTALL)}
CHOICES = {
    "model": "_target_: train.net",
    "dataset": "_target_: train.points",
    "step": "{_target_: train.step, _partial_: true}",
    "optim": "{_target_: torch.optim.Adam, _partial_: true}",
    "cluster": "{defaults: [local, _self_], workers: [{host: localhost, local_devices: 'cpu:2', speed: [1.0, 0.4]}]}",
}
TYPED = ("model=mine", "dataset=mine", "step=mine", "optim=mine", "cluster=mine", "elche=cpu_async",
         "trainer.batch_size=32", "trainer.num_epochs=3", "trainer.max_grad_norm=5.0")  # fmt: skip
AS_CONFIG = """
from flodl import TrainerConfig
from flodl.spec.codec import sha256
from train import *

rig = ClusterBuilder().host("localhost").cpu_ranks(2).speed(1.0, 0.4).build()
config = TrainerConfig(dataset=points, batch_size=32, num_epochs=3, cluster=rig, elche=ElCheConfig.cpu_async(),
                       max_grad_norm=5.0)
print(sha256(Trainer.spec(net, torch.optim.Adam, step, config)))
"""


def program(folder: Path, name: str, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Write it and run it, with its words in files: what is written there and what a rank's pipe takes differ. "-c": it
    is in no file."""
    if name != "-c":
        (folder / name).write_text(text)
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        code = subprocess.run(
            [sys.executable, *([name, text] if name == "-c" else [name]), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"},
            stdout=stdout,
            stderr=stderr,
            timeout=120.0,
        ).returncode
    return subprocess.CompletedProcess(name, code, out.read_text(), err.read_text())


def test_a_short_file_trains_an_own_model_on_own_data_and_its_spec_is_that_of_the_command_line(tmp_path: Path) -> None:
    text = PROGRAMS["train.py"]
    assert len([line for line in text.splitlines() if line.strip() and not line.startswith("#")]) <= 25
    done = program(tmp_path, "train.py", text)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "runs" / "first" / "spec.json").read_bytes()
    result = json.loads((tmp_path / "runs" / "first" / "result.json").read_text())
    assert (result["status"], result["epochs_done"], result["world_size"]) == ("done", 3, 2)
    for group, choice in CHOICES.items():
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").write_text(choice + "\n")
    with command(tmp_path, *TYPED, "hydra.run.dir=run") as run:
        assert run.end(120.0) == 0, run.output
    assert (tmp_path / "run" / "spec.json").read_bytes() == said
    again = program(tmp_path, "config.py", AS_CONFIG)
    assert again.stdout.strip() == json.loads(said)["sha256"], again.stderr


def test_a_start_that_ranks_would_repeat_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = program(tmp_path, "train.py", PROGRAMS["train.py"].replace('if __name__ == "__main__":', "if True:"))
    assert done.returncode != 0
    assert 'put the start under `if __name__ == "__main__":`' in " ".join(done.stderr.split())


# A kernel of a notebook, but for Jupyter: cells that are in no file, output without a descriptor, threads that are at
# work while it is forked from, handlers of SIGINT for each cell and none between them, and what rich knows it by.
KERNEL = """
import builtins, io, itertools, os, signal, sys, threading, time, types

def work():
    for number in itertools.count():
        time.sleep(0.001)

threading.Thread(target=work, daemon=True).start()
builtins.get_ipython, os.environ["FORCE_COLOR"] = type("ZMQInteractiveShell", (), {}), "1"
sys.modules["__main__"] = user = types.ModuleType("__main__")
words, sys.stdout = sys.stdout, io.StringIO()
for number, path in enumerate(sys.argv[1:]):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(path) as cell:
        exec(compile(cell.read(), f"/tmp/ipykernel_1/{number}.py", "exec"), vars(user))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print(sys.stdout.getvalue(), end="", file=words, flush=True)
"""
BEFORE = """import torch
torch.set_num_threads(2)
(torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()
"""
INTERRUPTED = """
import os, signal, threading
from flodl import Interrupted
assert run.next_metrics() is not None
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    run.join()
except Interrupted as error:
    print("interrupted:", error, (run.folder / "checkpoints" / "weights.safetensors").exists())
"""


def test_cells_of_a_notebook_train_what_lives_in_them_and_an_interrupted_one_ends_its_run_saved(tmp_path: Path) -> None:
    assert CELL is not None
    for name, cell in (("before", BEFORE), ("watch", PROGRAMS["watch.py"]), ("again", CELL[1]), ("then", INTERRUPTED)):
        (tmp_path / name).write_text(cell)
    done = program(tmp_path, "-c", KERNEL, "before", "watch", "again", "then")
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"weights \(2, 8\), accuracy (\d\.\d\d)", done.stdout)
    assert told is not None, done.stdout
    assert float(told[1]) > 0.9
    assert "interrupted: SIGINT True" in done.stdout
    assert "\nepoch   1/100  loss " in done.stdout, "plain text: no output of its own for each line, nothing that moves"
    result = json.loads((tmp_path / "runs" / "watched" / "result.json").read_text())
    assert (result["status"], result["exit_code"], result["reason"]) == ("stopped", 0, "good enough")
    with command(tmp_path, "task=rerun", "spec=runs/watched/spec.json", "hydra.run.dir=run") as run:
        assert run.end(60.0) == 2, run.output
        assert "lived in the program that asked for that run" in " ".join(run.output.split())


def test_a_small_gan_trains_with_its_own_loop(tmp_path: Path) -> None:
    done = program(tmp_path, "gan.py", PROGRAMS["gan.py"])
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"made: mean (\d\.\d\d), deviation (\d\.\d\d)", done.stdout)
    assert told is not None, done.stdout
    assert float(told[1]) == pytest.approx(3.0, abs=0.3)
    assert 0.2 < float(told[2]) < 0.8
    weights = load_file(tmp_path / "runs" / "gan" / "checkpoints" / "weights.safetensors")
    header, entries = read_journal(tmp_path / "runs" / "gan" / "journal.jsonl")
    job = resolved(load_spec(tmp_path / "runs" / "gan" / "spec.json"), header.roster)
    again = drive.replay([event for event, _ in entries], job, header.roster)
    assert list(again) == [commands for _, commands in entries]
    assert sorted(weights) == ["maker.0.bias", "maker.0.weight", "maker.2.bias", "maker.2.weight"]


LEAVE = """
import time
from pathlib import Path

from torch import nn

from flodl import ClusterBuilder, Trainer, TrainerConfig

def until_stopped(ctx):
    net = nn.Linear(1, 1)
    ctx.averager.watch(net)
    while not (ctx.rank == 0 and ctx.is_stopping):
        ctx.averager.average_parameters()
        Path("runs/begun").touch()
    return net

if __name__ == "__main__":
    rig = ClusterBuilder().host("localhost").cpu_ranks(2).build()
    Path("runs").mkdir()
    config = TrainerConfig(cluster=rig, num_epochs=3, save_path="runs/left")
    run = Trainer.run_loop(until_stopped, config)
    while not run.is_over and not Path("runs/begun").exists():
        time.sleep(0.05)
    run.stop("enough")
    print(sorted(run.join().params))
"""


def test_a_stop_that_ranks_hear_one_after_the_other_ends_in_order_and_what_a_loop_does_not_read_is_said(
    tmp_path: Path,
) -> None:
    done = program(tmp_path, "leave.py", LEAVE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['bias', 'weight']" in done.stdout
    assert "trainer.num_epochs: is ignored: loop=leave.until_stopped" in " ".join((done.stdout + done.stderr).split())
    result = json.loads((tmp_path / "runs" / "left" / "result.json").read_text())
    assert (result["status"], result["reason"][:6]) == ("stopped", "enough")


UNJOINED = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from flodl import ClusterBuilder, Trainer, TrainerConfig

def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)

def step(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])

if __name__ == "__main__":
    rig = ClusterBuilder().host("localhost").cpu_ranks(1).build()
    data = TensorDataset(torch.zeros(64, 4), torch.zeros(64, dtype=torch.int64))
    config = TrainerConfig(dataset=data, cluster=rig, num_epochs=1, save_path="run", eval_fn=lambda model: {"": 0.5})
    Trainer.run(lambda: nn.Linear(4, 2), sgd, step, config)
"""


def test_a_program_that_ends_without_join_waits_for_its_run_and_a_figure_without_a_name_is_refused(
    tmp_path: Path,
) -> None:
    done = program(tmp_path, "unjoined.py", UNJOINED)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["status"], result["exit_code"]) == ("failed", 3), done.stdout + done.stderr
    assert "callbacks.eval_fn gave a figure that cannot be recorded: the name ''" in result["reason"]
