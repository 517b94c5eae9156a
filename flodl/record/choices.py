"""What was chosen for a run, as Hydra left it in the run's folder: a choice per group, and what was typed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

__all__ = ["Choices", "read_choices"]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, in C where that was built: ten times as fast


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """chosen: group -> choice. typed: the overrides, as they were typed or swept."""

    chosen: dict[str, str] = {}
    typed: tuple[str, ...] = ()


def read_choices(path: Path) -> Choices:
    """Of a run's `choices_path`; empty where there is none (a program began it) or it cannot be understood."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)["hydra"]  # noqa: S506 - safe
        chosen = {
            str(group): choice for group, choice in found["runtime"]["choices"].items() if isinstance(choice, str)
        }
        return Choices(chosen=chosen, typed=tuple(str(text) for text in found["overrides"]["task"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return Choices()
