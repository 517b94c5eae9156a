"""Did you mean: the nearest right name for a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest"]


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The choice most like `word`, case ignored; None where none is near. cutoff: 0 (anything) .. 1 (the same)."""
    by_folded = {choice.lower(): choice for choice in sorted(choices)}
    found = get_close_matches(word.lower(), list(by_folded), n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A remedy: the nearest choice as a question, else the list of what may stand here ("" when there is none)."""
    known = sorted(choices)
    if not known:
        return ""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else "known here: " + ", ".join(known)
