"""A project of one's own in a folder that differs per host: its code, its data, its variables, and hostile names.

Two hosts of the cluster are this machine under two addresses, each with folders of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flodl.record.journal import read_journal
from tests.e2e.command import command

FOLDERS = ("one", "größe $(touch canary) 'two\" ; touch canary")  # of the hosts
OTHER = "127.0.0.2"
ODD = "a b'\"$(touch canary)\n-ü`touch canary`"
NAME = "$(touch canary) -rf 'ü\" ; touch canary"

OWN = ("elche=cpu_cadence", "model=own", "dataset=own", "trainer.num_epochs=2", "trainer.batch_size=8", "eval=off",
       "hydra.run.dir=run")  # fmt: skip

NET = '''"""A model that no host has but through its project folder."""
import os
import sys

from torch import nn

from widths import WIDTH


class Net(nn.Sequential):
    def __init__(self):
        sys.stdout.write(f"in {os.getcwd()!r} with {os.environ['ODD']!r} and {os.environ['PASSED_ON']!r}\\n")
        super().__init__(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
'''
POINTS = '''"""A data set that is read from the host's own data folder."""
import numpy as np
import torch
from torch.utils.data import TensorDataset


def points(path):
    with np.load(path) as found:
        return TensorDataset(torch.from_numpy(found["x"]), torch.from_numpy(found["y"]))
'''


def project(folder: Path, data: Path, *, width: int = 8, seed: int = 0) -> None:
    """One host's copy of the project and of its data."""
    for place in (folder, data / "points"):
        place.mkdir(parents=True, exist_ok=True)
    (folder / "net_of_mine.py").write_text(NET)
    (folder / "widths.py").write_text(f"WIDTH = {width}\n")
    (folder / "points_of_mine.py").write_text(POINTS)
    stream = np.random.RandomState(seed)
    x = stream.normal(0.0, 1.0, (320, 4)).astype(np.float32)
    np.savez(data / "points" / "train.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))


def own_choices(folder: Path) -> None:
    """model=own and dataset=own of a working folder."""
    for group, text in (
        ("model", "_target_: net_of_mine.Net\n"),
        ("dataset", '_target_: points_of_mine.points\npath: "@data/points/train.npz"\n'),
    ):
        file = folder / "conf" / group / "own.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)


def rig(tmp_path: Path, **other: int) -> tuple[str, ...]:
    """Two copies, a cluster file in ./conf, and the arguments that use it. other: what is different on the second."""
    project(tmp_path / FOLDERS[0], tmp_path / FOLDERS[0] / "data")
    project(tmp_path / FOLDERS[1], tmp_path / "sets $(touch canary)", **other)
    workers: list[dict[str, Any]] = [
        {"host": "localhost", "path": str(tmp_path / FOLDERS[0])},
        {"host": OTHER, "path": str(tmp_path / FOLDERS[1]), "data_path": str(tmp_path / "sets $(touch canary)")},
    ]
    for worker in workers:
        worker |= {"local_devices": "cpu:1", "nccl_socket_ifname": "lo", "env": {"ODD": ODD}}
    file = tmp_path / "conf" / "cluster" / "two.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"defaults": ["local", "_self_"], "workers": workers, "env_pass": ["PASSED_ON"]}))
    own_choices(tmp_path)
    return ("cluster=two", *OWN)


@pytest.fixture(autouse=True)
def passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", ODD + " passed on")


def test_each_host_trains_with_the_code_the_data_and_the_variables_of_its_own_folders(tmp_path: Path) -> None:
    with command(tmp_path, *rig(tmp_path), f"name={json.dumps(NAME, ensure_ascii=False)}") as run:
        assert run.end(120.0) == 0, run.output
        assert run.result["status"] == "done"
        assert run.result["hosts"] == ["localhost", OTHER]
        assert run.result["name"] == NAME
        assert json.loads((tmp_path / "run" / "spec.json").read_text())["job"]["name"] == NAME
    for folder, host, rank in zip(FOLDERS, ("localhost", OTHER), (0, 1), strict=True):
        log = (tmp_path / "run" / "ranks" / f"{host}.{rank}.log").read_text()
        assert f"in {str(tmp_path / folder)!r} with {ODD!r} and {ODD + ' passed on'!r}" in log
    _, entries = read_journal(tmp_path / "run" / "journal.jsonl")
    ready = [event for event, _ in entries if type(event).__name__ == "RankReady"]
    assert ready[0].project == ready[1].project
    assert sorted(ready[0].project) == ["net_of_mine.py", "points_of_mine.py", "widths.py"]
    assert list(tmp_path.rglob("canary")) == []


def test_a_stale_file_on_one_host_is_refused_by_name(tmp_path: Path) -> None:
    with command(tmp_path, *rig(tmp_path, width=9)) as run:
        assert run.end(120) == 3, run.output
        said = " ".join(run.output.split())
    assert f"{OTHER}: widths.py of the project is not what localhost has; run with cluster.deploy.code=rsync" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("probe", "words"),
    [("true", "train.npz is not what localhost has in"), ("false", "the data differ: rank 0 on localhost has")],
)
def test_data_that_differ_on_one_host_are_refused_by_name(tmp_path: Path, probe: str, words: str) -> None:
    with command(tmp_path, *rig(tmp_path, seed=1), f"launch.probe={probe}") as run:
        assert run.end(120) == 3, run.output
        said = " ".join(run.output.split())
    assert OTHER in said.partition(words)[0]
    assert words in said
    assert "deploy.data=rsync" in said
    assert "Traceback" not in said


def test_a_module_that_one_host_lacks_is_told_with_its_host(tmp_path: Path) -> None:
    arguments = rig(tmp_path)
    (tmp_path / FOLDERS[1] / "net_of_mine.py").unlink()
    with command(tmp_path, *arguments) as run:
        assert run.end(120) in (2, 3), run.output
        said = " ".join(run.output.split())
    assert "net_of_mine" in said
    assert OTHER in said
