"""The shipped data sets are the same everywhere and fit what the config says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from flodl.datasets.digits import BUNDLED, digits
from flodl.datasets.synthetic import synthetic
from flodl.engine.reading import signature
from flodl.errors import ConfigError


def test_digits_are_1797_images_in_two_parts_without_overlap() -> None:
    splits = digits()
    images = torch.cat([splits.train.tensors[0], splits.eval.tensors[0]]).flatten(1)
    assert (len(splits.train), len(splits.eval)) == (1497, 300)
    assert len({row.numpy().tobytes() for row in images}) == 1797  # the originals are all different


def test_digits_are_normalised_and_shaped_for_convolutions() -> None:
    images, labels = digits().train.tensors
    assert (images.dtype, images.shape[1:]) == (torch.float32, (1, 8, 8))
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01
    assert (labels.dtype, labels.unique().tolist()) == (torch.int64, list(range(10)))


def test_digits_are_evaluated_on_every_class_alike() -> None:
    assert digits().eval.tensors[1].bincount(minlength=10).tolist() == [30] * 10
    assert digits(num_eval=15).eval.tensors[1].bincount(minlength=10).max() == 2


def test_digits_are_bit_for_bit_the_same_on_every_host() -> None:
    assert signature(digits().train) == "1497-a4aae22db1ee35e0"


def test_the_bundled_file_is_small_and_has_its_attribution_beside_it() -> None:
    assert BUNDLED.stat().st_size < 50_000
    attribution = (BUNDLED.parent / "DIGITS.md").read_text()
    assert "CC BY 4.0" in attribution
    assert "Alpaydin" in attribution


def test_another_copy_of_digits_can_be_named(tmp_path: Path) -> None:
    copy = tmp_path / "a copy.npz"
    copy.write_bytes(BUNDLED.read_bytes())
    assert signature(digits(file=str(copy)).train) == signature(digits().train)


def test_a_missing_copy_of_digits_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        digits(file=str(tmp_path / "none.npz"))
    assert missing.value.filename == str(tmp_path / "none.npz")


def test_a_file_with_pickled_objects_is_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", images=np.array([object()], dtype=object), labels=np.zeros(1))
    with pytest.raises(ValueError, match="allow_pickle"):
        digits(file=str(tmp_path / "bad.npz"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_shape": [3, 8, 8]}, "dataset.image_shape=[3, 8, 8]: the data has [1, 8, 8]"),
        ({"num_classes": 100}, "dataset.num_classes=100: the data has 10"),
        ({"num_eval": 1797}, "dataset.num_eval=1797: must leave samples on both sides"),
        ({"num_eval": 0}, "dataset.num_eval=0: must leave samples on both sides"),
    ],
)
def test_arguments_that_do_not_fit_digits_are_refused_with_their_key(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        digits(**arguments)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_synthetic_data_has_the_size_and_shape_that_was_asked_for() -> None:
    splits = synthetic(image_shape=[2, 5, 4], num_classes=3, num_samples=50, num_eval=7)
    assert splits.train.tensors[0].shape == (50, 2, 5, 4)
    assert splits.eval.tensors[0].shape == (7, 2, 5, 4)
    assert set(splits.train.tensors[1].tolist()) == {0, 1, 2}


def test_synthetic_data_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    first = synthetic(num_samples=64, seed=5).train
    torch.manual_seed(2)
    np.random.seed(2)
    assert signature(first) == signature(synthetic(num_samples=64, seed=5).train)
    assert signature(first) != signature(synthetic(num_samples=64, seed=6).train)


def test_synthetic_classes_can_be_told_apart() -> None:
    splits = synthetic(num_samples=2000, num_eval=200, noise=1.0)
    inputs, labels = (t.clone() for t in splits.train.tensors)
    centers = torch.stack([inputs[labels == k].mean(dim=0) for k in range(10)]).flatten(1)
    nearest = torch.cdist(splits.eval.tensors[0].flatten(1), centers).argmin(dim=1)
    assert (nearest == splits.eval.tensors[1]).float().mean() > 0.95


def test_synthetic_data_can_do_without_an_evaluation_set() -> None:
    assert synthetic(num_samples=8, num_eval=0).eval is None
