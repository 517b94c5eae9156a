"""How batches come to a rank: data kept on the device, or loader processes that fetch whole batches ahead."""

from __future__ import annotations

from typing import Literal

from flodl.spec.value import NonNegativeInt, PositiveInt, Value

__all__ = ["LoaderConfig"]


class LoaderConfig(Value, frozen=True, kw_only=True):
    """resident: keep the data on the device (auto: an in-memory data set that fits a share of its free memory).

    The rest is for data that is not kept there. num_workers: processes per rank; 0: the rank reads by itself.
    prefetch: batches that each of them fetches ahead. pin_memory: page-locked batches, copied while a GPU computes.
    """

    resident: Literal["auto"] | bool = "auto"
    num_workers: NonNegativeInt = 2
    prefetch: PositiveInt = 2
    pin_memory: bool = True
