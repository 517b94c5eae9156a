"""No data set: for a training loop of the user's own that was given none, and may do without."""

from __future__ import annotations

from typing import NoReturn

from flodl.errors import ConfigError, Problem

__all__ = ["none"]


def none() -> NoReturn:
    """Whoever asks for the data set hears that there is none. Raises ConfigError."""
    raise ConfigError([Problem(key="dataset", constraint="is missing, and the loop asks for ctx.loader",
                               remedy="give the loop's run one: TrainerConfig(dataset=...)")])  # fmt: skip
