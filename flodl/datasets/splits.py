"""What a data set's function returns: a part to learn from and a part to be judged on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flodl.errors import ConfigError, Problem

__all__ = ["Splits", "require"]


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Two map-style data sets (__len__ and __getitem__). eval None: nothing is evaluated.

    A torch.utils.data.TensorDataset is kept on the device and batched by one index_select.
    """

    train: Any
    eval: Any = None


def require(name: str, given: Sequence[int] | int, actual: Sequence[int] | int) -> None:
    """Hold an argument that the config states (for the model to read) against what the data is.

    Raises ConfigError with the key ``dataset.<name>``.
    """
    stated = given if isinstance(given, int) else list(given)
    found = actual if isinstance(actual, int) else list(actual)
    if stated != found:
        problem = Problem(
            key=f"dataset.{name}",
            value=str(stated),
            constraint=f"the data has {found}",
            remedy=f"set it to {found}",
        )
        raise ConfigError([problem])
