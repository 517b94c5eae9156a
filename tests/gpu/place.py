"""Where a script of this folder measures: the first line of what it prints, and the heading in docs/benchmark.md."""

from __future__ import annotations

import shlex
import sys

import torch

from flodl.probe.gpus import see_gpus

__all__ = ["headline"]


def headline(module: str) -> str:
    """What is run on which cards."""
    cards = [gpu.name for gpu in see_gpus().gpus]
    kinds = ", ".join(f"{cards.count(name)} x {name}" for name in dict.fromkeys(cards))
    return f"`{shlex.join(['python', '-m', module, *sys.argv[1:]])}` on {kinds}, torch {torch.__version__}"
