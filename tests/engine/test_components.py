"""Components of one's own: functions as steps, bare data sets, transforms and batches by import path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from flodl.engine.build import build
from flodl.engine.reading import batch_of
from flodl.engine.surroundings import Surroundings
from flodl.errors import ConfigError, NotReady
from flodl.spec.component import Component
from tests.engine.test_build import JOB, changed, project

__all__ = ["project"]  # the fixture

CODE = """
import torch
from torch.utils.data import Dataset, IterableDataset


class Points(Dataset):
    train = True  # torchvision's sets have a flag of this name

    def __init__(self, count=100):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((1, 8, 8), float(index)), index % 10


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])

    def __len__(self):
        return 5


def named(batch_size=100):
    return {"train": Points(batch_size), "eval": Points(7)}


def step(model, batch, *, scale=1.0):
    return model(batch[0]).square().mean() * scale


def collate(samples):
    return torch.stack([sample[0] for sample in samples]), "mine"


def doubled(image):
    return image * 2
"""


@pytest.fixture
def place(project: Path) -> Surroundings:
    (project / "own_parts.py").write_text(CODE)
    return Surroundings(device=torch.device("cpu"), host="node-a", path=str(project))


def refusal(place: Surroundings, error: type[Exception], part: str, target: str, **args: Any) -> str:
    with pytest.raises(error) as caught:
        build(changed(part, target, **args), place)
    return str(caught.value)


def test_a_function_is_the_step_where_the_config_says_so(place: Surroundings) -> None:
    step = Component(target="own_parts.step", args={"scale": 3.0}, partial=True)
    built = build(JOB.replace(step=step), place)
    assert built.step(torch.nn.Identity(), (torch.full((2,), 2.0),)).item() == 12.0


def test_a_function_that_is_called_for_a_step_says_how_to_be_one(place: Surroundings) -> None:
    text = refusal(place, ConfigError, "step", "own_parts.step")
    assert "missing a required argument: 'model'" in text
    assert "if the function itself is meant, add _partial_: true" in text


def test_a_bare_map_style_set_is_trained_on_and_nothing_is_evaluated(place: Surroundings) -> None:
    built = build(changed("dataset", "own_parts.Points"), place)
    assert (built.num_samples, built.eval) == (100, None)


def test_two_named_parts_are_a_data_set(place: Surroundings) -> None:
    built = build(changed("dataset", "own_parts.named"), place)
    assert (built.num_samples, len(built.eval)) == (100, 7)


def test_a_stream_is_refused_in_words(place: Surroundings) -> None:
    text = refusal(place, NotReady, "dataset", "own_parts.Stream")
    assert "its train set is a Stream on host node-a; it must be map-style" in text
    assert "index a stream's files, or store it once" in text


POINTS: dict[str, Any] = {"_target_": "own_parts.Points"}
MAP_STYLE = "flodl.datasets.map_style.map_style"


def test_transforms_and_batches_come_by_import_path(place: Surroundings) -> None:
    transform = [{"_target_": "own_parts.doubled", "_partial_": True}, {"_target_": "torch.nn.Flatten", "start_dim": 0}]
    job = changed(
        "dataset", MAP_STYLE, train=POINTS, eval_fraction=0.1, transform=transform, collate_fn="own_parts.collate"
    )
    built = build(job, place)
    images, word = batch_of(built.eval, torch.tensor([0]), place.device)
    assert (len(built.train), len(built.eval), images.shape, word) == (90, 10, (1, 64), "mine")
    assert images[0, 0] == 2 * built.eval.dataset[0][0][0, 0, 0]


@pytest.mark.parametrize("collate_fn", ["os.system", {"_target_": "os.system", "_partial_": True}])
def test_a_collate_fn_is_judged_like_every_target(place: Surroundings, collate_fn: Any) -> None:
    text = refusal(place, ConfigError, "dataset", MAP_STYLE, train=POINTS, collate_fn=collate_fn)
    assert "dataset.collate_fn._target_=os.system" in text


def test_a_collate_fn_that_is_no_path_is_told(place: Surroundings) -> None:
    text = refusal(place, ConfigError, "dataset", MAP_STYLE, train=POINTS, collate_fn="padded")
    assert "dataset.collate_fn._target_=padded" in text


def test_missing_files_of_a_shipped_set_are_told_with_their_key_and_source(tmp_path: Path) -> None:
    here = Surroundings(device=torch.device("cpu"), host="node-a", data_path=str(tmp_path))
    text = refusal(here, NotReady, "dataset", "flodl.datasets.mnist.fashion_mnist", folders=["@data/f", "/none"])
    assert text.startswith(f"dataset.folders[0]=@data/f: no such file on host node-a: looked for {tmp_path}/f; @data")
    assert "package dataset-fashion-mnist" in text
