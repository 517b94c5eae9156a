"""Runs that look for faults: in a cluster, in a model, with a debugger."""

from __future__ import annotations

from flodl.spec.value import PositiveInt, Value

__all__ = ["DebugConfig"]


class DebugConfig(Value, frozen=True, kw_only=True):
    """max_windows: the run ends after so many, which are as short as can be. eval_everywhere: at the end every rank
    evaluates, and fails the run where it cannot. overfit: the same batch, over and over. inprocess: the first device
    trains in the controller's own process, where a debugger can follow."""

    max_windows: PositiveInt | None = None
    eval_everywhere: bool = False
    overfit: bool = False
    inprocess: bool = False
