"""Image sets from files: the right ones are read, wrong ones are refused before memory is taken for them."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from flodl.datasets.cifar import RECORD_BYTES, Augmented, cifar10
from flodl.datasets.files import MissingDataError
from flodl.datasets.idx import read_idx
from flodl.datasets.mnist import fashion_mnist, mnist
from flodl.engine.reading import signature
from flodl.errors import ConfigError, NotReady
from tests.datasets.files import cifar_like, idx, mnist_like

ITEMS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_file_is_read_plain_or_packed_whatever_its_name(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(idx(ITEMS)) if packed else idx(ITEMS))
    assert np.array_equal(read_idx(path, (3, 4)), ITEMS)


WRONG = {
    "a text": (b"hello, I am a text of some length", "is no IDX file"),
    "an empty file": (b"", "is no IDX file"),
    "half a header": (idx(ITEMS)[:9], "is no IDX file"),
    "floats": (b"\0\0\x0d" + idx(ITEMS)[3:], "holds type 0x0d in 3 dimensions, expected were unsigned bytes"),
    "labels": (idx(np.zeros(5)), "is no IDX file|in 1 dimensions"),
    "other labels": (idx(np.zeros(500)), "holds type 0x08 in 1 dimensions, expected .* in 3"),
    "other images": (idx(np.zeros((2, 4, 3))), r"holds items of \[4, 3\], expected were \[3, 4\]"),
    "a short file": (idx(ITEMS)[:-1], "states 24 bytes of data, a file of 39 bytes cannot hold that"),
    "a long file": (idx(ITEMS) + b"\0", "states 24 bytes of data, a file of 41 bytes"),
    "an absurd size": (idx(ITEMS, stated=(2**32 - 1, 3, 4)), "states 51539607540 bytes of data"),
    "an absurd packed size": (gzip.compress(idx(ITEMS, stated=(2**32 - 1, 3, 4))), "states 51539607540 bytes of data"),
    "a short packed file": (gzip.compress(idx(ITEMS)[:-1]), "states 24 bytes of data, it has 23"),
    "a long packed file": (gzip.compress(idx(ITEMS) + bytes(9)), "states 24 bytes of data, it has 33 or more"),
    "a torn packed file": (gzip.compress(idx(ITEMS))[:-12], "cannot be read"),
    "a damaged packed file": (gzip.compress(idx(ITEMS))[:-8] + bytes(8), "cannot be read: CRC"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_file_that_is_something_else_is_refused_without_taking_memory(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(NotReady, match=message):
            read_idx(path, (3, 4))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_packed_file_that_unpacks_to_more_than_it_states_is_not_unpacked_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(idx(ITEMS) + bytes(200_000_000), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(NotReady, match=r"it has .* or more"):
            read_idx(path, (3, 4))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("load", [mnist, fashion_mnist])
def test_mnist_and_fashion_mnist_are_normalised_images_and_labels(tmp_path: Path, load: object, packed: bool) -> None:
    folder = mnist_like(tmp_path / "set", packed=packed)
    splits = load(folders=[str(tmp_path / "elsewhere"), str(folder)])  # type: ignore[operator]
    images, labels = splits.train.tensors
    assert (images.shape, images.dtype) == ((40, 1, 28, 28), torch.float32)
    assert -1.0 < images.min() < 0.0 < 1.5 < images.max() < 3.0
    assert (labels.dtype, labels[:12].tolist()) == (torch.int64, [*range(10), 0, 1])
    assert len(splits.eval) == 20


def test_missing_files_say_what_was_looked_for_and_where_it_can_be_had(tmp_path: Path) -> None:
    (mnist_like(tmp_path / "half") / "train-labels-idx1-ubyte.gz").unlink()
    folders = [str(tmp_path / "none"), str(tmp_path / "half")]
    with pytest.raises(MissingDataError) as missing:
        fashion_mnist(folders=folders)
    assert missing.value.filename == folders[0]
    assert f"{folders[0]} and {folders[1]} (no train-labels-idx1-ubyte)" in missing.value.source
    assert "package dataset-fashion-mnist" in missing.value.source


def test_images_without_their_labels_are_refused(tmp_path: Path) -> None:
    folder = mnist_like(tmp_path / "set", packed=False)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(39)))
    with pytest.raises(NotReady, match="has 40 images, 39 labels are beside it"):
        mnist(folders=[str(folder)])
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.full(40, 10)))
    with pytest.raises(NotReady, match="has a label of 10, classes are 0 to 9"):
        mnist(folders=[str(folder)])


def test_arguments_that_do_not_fit_the_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset.image_shape=\[1, 8, 8\]: the data has \[1, 28, 28\]"):
        mnist(folders=[], image_shape=[1, 8, 8])
    with pytest.raises(ConfigError, match=r"dataset.num_classes=100: the data has 10"):
        cifar10(folders=[], num_classes=100)


def test_cifar_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    splits = cifar10(folders=[str(cifar_like(tmp_path / "set"))], augment=False)
    images, labels = splits.train.tensors
    assert (images.shape, images.dtype, len(splits.eval)) == ((100, 3, 32, 32), torch.float32, 20)
    assert labels[:12].tolist() == [*range(10), 0, 1]
    assert images[9].mean() > images[0].mean() + 2.0


def test_augmented_images_are_shifted_and_mirrored_copies_drawn_from_the_seed(tmp_path: Path) -> None:
    train = cifar10(folders=[str(cifar_like(tmp_path / "set"))]).train
    assert isinstance(train, Augmented)
    assert signature(train) == signature(train)
    plain = cifar10(folders=[str(cifar_like(tmp_path / "set"))], augment=False).train
    torch.manual_seed(0)
    looks = [train[3][0] for _ in range(40)]
    assert len({look.numpy().tobytes() for look in looks}) > 30
    inner = plain[3][0][:, 8:24, 8:24]
    assert any(_holds(look, inner) for look in looks)
    assert any(_holds(look.flip(-1), inner) for look in looks if not _holds(look, inner))


def _holds(image: torch.Tensor, part: torch.Tensor) -> bool:
    """True where `part` lies somewhere in the image."""
    side = part.shape[-1]
    windows = image.unfold(1, side, 1).unfold(2, side, 1)
    return bool((windows == part[:, None, None]).all(dim=-1).all(dim=-1).all(dim=0).any())


def test_cifar_is_judged_without_augmentation(tmp_path: Path) -> None:
    assert type(cifar10(folders=[str(cifar_like(tmp_path / "set"))]).eval) is TensorDataset


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes, which are no whole records of 3073"),
        (bytes(RECORD_BYTES + 1), "has 3074 bytes, which are no whole records"),
        (b"\x0a" + bytes(RECORD_BYTES - 1), "has a label of 10, classes are 0 to 9"),
    ],
    ids=["empty", "torn", "label"],
)
def test_a_file_that_is_not_cifar_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (cifar_like(tmp_path / "set") / "data_batch_3.bin").write_bytes(data)
    with pytest.raises(NotReady, match=message):
        cifar10(folders=[str(tmp_path / "set")])


def test_missing_cifar_says_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as missing:
        cifar10(folders=[str(tmp_path)])
    assert "cifar-10-binary.tar.gz" in missing.value.source
