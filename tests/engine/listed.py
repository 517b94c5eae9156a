"""A map-style data set with randomness, for tests of how data is read."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import numpy as np
import torch

N = 20


class Listed:
    """Read sample by sample. broken: a sample that cannot be read; deadly: one that ends who reads it."""

    def __init__(self, length: int = N, *, broken: int = -1, deadly: int = -1, seconds: float = 0.0) -> None:
        self.length = length
        self.broken = broken
        self.deadly = deadly
        self.seconds = seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.broken:
            raise OSError("a torn file")
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        noise = (torch.rand(()).item(), float(np.random.rand()), random.random())
        return {"x": torch.tensor([index, index]), "label": index, "noise": noise, "reader": os.getpid()}
