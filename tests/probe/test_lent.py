"""CUDA_VISIBLE_DEVICES in all its forms."""

from __future__ import annotations

import pytest

from flodl.probe.lent import lent_gpus
from tests.probe.jobs import gpu

INSTALLED = (gpu(0, uuid="GPU-aa11"), gpu(1, uuid="GPU-aa22"), gpu(2, uuid="MIG-33", installed_index=2))


@pytest.mark.parametrize(
    ("lent", "uuids"),
    [
        (None, ["GPU-aa11", "GPU-aa22", "MIG-33"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", ["GPU-aa22"]),
        (" 1 , 0 ", ["GPU-aa22", "GPU-aa11"]),
        ("0,7,1", ["GPU-aa11"]),  # what follows a wrong name does not count
        ("0,-1,1", ["GPU-aa11"]),
        ("0,0", []),  # the driver gives nothing at all then
        ("GPU-aa22", ["GPU-aa22"]),
        ("GPU-aa2,0", ["GPU-aa22", "GPU-aa11"]),  # a beginning, where it is unique
        ("GPU-aa", []),
        ("MIG-33", ["MIG-33"]),
        ("GPU-none,0", []),
    ],
)
def test_the_list_is_read_as_the_driver_reads_it(lent: str | None, uuids: list[str]) -> None:
    found = lent_gpus(INSTALLED, lent)
    assert [gpu.uuid for gpu in found] == uuids
    assert [gpu.index for gpu in found] == list(range(len(uuids)))
