"""Every shipped recipe runs, shortened; data that cannot be there is made in the format of the real files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flodl.models.gpt_nano import GPT
from tests.datasets.files import cifar_like, mnist_like
from tests.e2e.command import command
from tests.engine.live import ROOT

SHORT = ("trainer.num_epochs=1", "trainer.batch_size=8", "hydra.run.dir=run")
RECIPES = {
    "quickstart": ("trainer.limit_batches=12",),
    "fashion_lenet": (),
    "fashion_resnet": (),
    "cifar_resnet": (),
    "text_gpt": ("trainer.limit_batches=6", "model.width=32", "model.depth=1", "dataset.num_eval=8"),
}


def test_every_shipped_recipe_is_run_here() -> None:
    names = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")}
    assert {name for name in names if not name.startswith("ab_")} == set(RECIPES)  # ab_: sweeps


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_evaluates_and_leaves_its_weights(tmp_path: Path, recipe: str) -> None:
    mnist_like(tmp_path / "data" / "fashion-mnist")
    cifar_like(tmp_path / "data" / "cifar-10-batches-bin")
    with command(tmp_path, f"experiment={recipe}", *RECIPES[recipe], *SHORT) as run:
        assert run.end(120.0) == 0, run.output
        assert (run.result["status"], run.result["epochs_done"]) == ("done", 1)
        assert {"loss", "accuracy"} <= set(run.result["eval"])
    weights = load_file(tmp_path / "run" / "checkpoints" / "weights.safetensors")
    assert weights
    if recipe == "text_gpt":
        tied_weights_load_in_plain_pytorch(weights)


def tied_weights_load_in_plain_pytorch(weights: dict[str, torch.Tensor]) -> None:
    model = GPT(vocab_size=98, block_size=64, width=32, depth=1)
    model.load_state_dict(weights)
    assert model.head.weight is model.tokens.weight
    assert torch.equal(weights["head.weight"], weights["tokens.weight"])


def test_a_model_a_data_set_and_a_step_of_ones_own_learn(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "own_model", tmp_path, dirs_exist_ok=True)
    with command(tmp_path, "experiment=own_model", "hydra.run.dir=run") as run:
        assert run.end(120.0) == 0, run.output
        lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        told = [line["scalars"] for line in lines if "scalars" in line]
        assert [sorted(scalars) for scalars in told] == [["accuracy", "largest_logit"]] * 8
        assert told[-1]["accuracy"] > 0.95 > 0.8 > told[0]["accuracy"]
        assert told[-1]["largest_logit"] > 2.0
        assert run.result["eval"]["loss"] < 0.2


def test_a_missing_data_set_says_which_key_names_it_and_where_it_can_be_had(tmp_path: Path) -> None:
    with command(tmp_path, "model=mlp", "dataset=mnist", "hydra.run.dir=run") as run:
        assert run.end(120) == 3
        said = " ".join(run.output.split())
        folder = tmp_path / "data"
        assert f"dataset.folders[0]=@data/mnist: no such file on host localhost: looked for {folder / 'mnist'}" in said
        assert f"@data is {folder} (<path>/data, as data_path is not set)" in said
        assert f"{folder / 'MNIST/raw'}; MNIST is at https://" in said
