"""What is public is listed, sorted, there, and brings in what it needs only when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import flodl

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert sorted(flodl.__all__) == flodl.__all__
    assert set(flodl.__all__) <= set(dir(flodl))
    assert [name for name in flodl.__all__ if not getattr(flodl, name).__doc__ and name != "ElCheMode"] == []
    assert (ROOT / "flodl" / "py.typed").exists()


def test_saying_what_is_wanted_loads_neither_torch_nor_hydra() -> None:
    code = (
        "import sys\n"
        "from flodl import ClusterBuilder, ElCheConfig, EpochCallbackPolicy, StopConfig, Trainer, TrainerConfig\n"
        "TrainerConfig(elche=ElCheConfig.cpu_async(), cluster=ClusterBuilder().host('a').cpu_ranks(1).build())\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'torch', 'hydra', 'omegaconf', 'zmq', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
