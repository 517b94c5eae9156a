"""What is public is listed, sorted, there, and brings in what it needs only when it is asked for."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import flodl
from flodl.spec.codec import canonical_json
from tests.door import sample

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


def test_the_sample_that_pyright_checks_strictly_uses_the_whole_door_and_means_what_it_says() -> None:
    text = (ROOT / "tests" / "door" / "sample.py").read_text()
    assert [name for name in flodl.__all__ if not re.search(rf"\b{name}\b", text)] == []
    assert '"tests/door/sample.py"' in (ROOT / "pyproject.toml").read_text()
    chain, config = sample.specs()
    assert canonical_json(chain) != canonical_json(config)
    assert (chain.trainer.seed, config.trainer.max_grad_norm) == (1, 5.0)
    assert sorted(sample.modes()) == ["cpu_async", "cpu_cadence", "cpu_sync", "nccl_cadence", "nccl_sync"]
    assert [host.host for host in sample.cluster().workers] == ["a", "b"]


def test_every_field_of_the_config_is_a_method_of_the_chain_and_each_says_what_it_is() -> None:
    fields = {field.name for field in dataclasses.fields(flodl.TrainerConfig)} - {"overrides"}
    methods = {name for name in vars(flodl.TrainerBuilder) if not name.startswith("_")}
    assert fields <= methods
    assert methods - fields == {"spec", "run", "override"}
