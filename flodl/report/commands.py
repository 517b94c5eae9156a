"""What was typed for an arm, typed once more with something changed: whole commands, for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from flodl.record.choices import read_choices
from flodl.record.folder import RunFolder
from flodl.report.arm import SEED, Arm
from flodl.report.compared import Compared
from flodl.report.differences import key_of

__all__ = ["commands", "were_typed"]

SWEEPS = "hydra.sweeper.params=null"  # a recipe may be a sweep of its own, which is not meant again


def commands(arms: Sequence[Compared], groups: Sequence[str], changes: Sequence[str]) -> tuple[str, ...]:
    """One per group: what its arms had, with these overrides in place of their own. Empty where one cannot be typed."""
    made = [_command([arm for arm in arms if arm.group == name and arm.counts], changes) for name in groups]
    return tuple(made) if all(made) else ()


def were_typed(folders: Sequence[RunFolder]) -> bool:
    """Whether each of these runs came of a command that says all of it: none of a program, or of another run's job."""
    return all(read_choices(folder.choices_path).chosen.get("task") == "train" for folder in folders)


def _command(arms: Sequence[Arm], changes: Sequence[str]) -> str:
    """ "" where an override was told shortly. Several seeds stay several."""
    if not arms or any(not _is_whole(text) for arm in arms for text in arm.overrides):
        return ""
    seeds = {text.partition("=")[2]: None for arm in arms for text in arm.overrides if key_of(text) == SEED}
    had = [text for text in arms[0].overrides if key_of(text) != SEED]
    had += [f"{SEED}={','.join(seeds)}"] if seeds else []
    changed = {key_of(text) for text in changes}
    words = [*(text for text in had if key_of(text) not in changed), *changes]
    if any(key_of(text) == "experiment" for text in words):
        words.append(SWEEPS)
    many = any(key_of(text) == SEED and "," in text for text in words)
    return shlex.join(["python", "-m", "flodl", *(["-m"] if many else []), *words])


def _is_whole(text: str) -> bool:
    """Whether it says all: where runs are told apart (see differences), long values and many of them are cut."""
    return not text.startswith("(") and "... (" not in text
