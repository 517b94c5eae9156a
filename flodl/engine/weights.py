"""How a model's tensors are called outside of flodl: as the user's own model calls them."""

from __future__ import annotations

__all__ = ["bare_name"]


def bare_name(name: str) -> str:
    """A tensor's name as the user's own model has it: torch.compile(model) puts a prefix into all of them."""
    return name.replace("_orig_mod.", "")
