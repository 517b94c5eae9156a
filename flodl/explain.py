"""Hydra's complaints in our form: key, value, what is wrong, what to do. No traceback for a slip of the finger."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from flodl.errors import ConfigError, FlodlError, NotReady, Problem
from flodl.record.text import clean, no_write
from flodl.slips import slip
from flodl.spec.keys import as_typed
from flodl.spec.suggest import nearest
from flodl.tasks.which import OUTPUTS
from flodl.unknown import unknown

__all__ = ["explain"]

_OVERRIDE = re.compile(r"Could not override '(?P<key>[^']+)'")
_APPEND = re.compile(r"use \+(?P<key>[^=\s]+)=(?P<value>.*)")
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<key>[^=]+)=(?P<value>[^']*)'")
_TWICE = re.compile(r"Multiple values for (?P<group>\S+?)\. .*override \S+ (?P<choice>[^']+)'")
_THERE = re.compile(r"already at '(?P<key>[^']+)'")
_MERGE = re.compile(r"Error merging override \+*(?P<key>[^=\s]+)=(?P<value>.*)")
_NO_CHOICE = "Config group override must be a string or a list"
_GONE = re.compile(r"Could not delete.*'(?P<key>[^']+)' does not exist")


def explain(error: Exception, groups: list[str], arguments: Sequence[str] = ()) -> FlodlError | None:
    """An error of Hydra's, OmegaConf's or of the file system before a task began, in words; None for any other.

    groups: names of the config groups. arguments: what was typed.
    """
    if (found := slip(error, arguments)) is not None:
        return ConfigError([found])
    if isinstance(error, MissingConfigException):
        return ConfigError([_missing(error)])
    if isinstance(error, OverrideParseException):
        return ConfigError([_unreadable(error)])
    if isinstance(error, HydraException | OmegaConfBaseException):
        return ConfigError([_composition(error, groups, arguments)])
    if isinstance(error, ValueError) and _NO_CHOICE in str(error):
        return ConfigError(_choiceless(groups, arguments))
    if isinstance(error, OSError) and error.strerror and not isinstance(error, BrokenPipeError):  # that is a reader's
        named = [
            text.partition("=")[2] for text in arguments if text.startswith(("hydra.run.dir=", "hydra.sweep.dir="))
        ]
        return NotReady(no_write(error, Path(named[-1] if named else OUTPUTS)))
    return None


def _choiceless(groups: Sequence[str], arguments: Sequence[str]) -> list[Problem]:
    """What was typed where the name of a choice belongs: nothing, or a number."""
    typed = [text for text in arguments if "=" in text and not text.startswith("-")]
    found = OverridesParser.create().parse_overrides(typed)
    return [
        Problem(key=override.key_or_group or "''", value=str(override.get_value_element_as_str()),
                constraint="is no choice of a group" if override.key_or_group else "there is no key before the =",
                remedy="write group=choice; python -m flodl --help lists the choices")
        for override in found
        if override.key_or_group in ("", *groups) and not isinstance(override.value(), str | list)
    ]  # fmt: skip


def _missing(error: MissingConfigException) -> Problem:
    wanted = error.missing_cfg_file or "config"
    group, _, choice = wanted.rpartition("/")
    options = list(error.options or ())
    if not group:
        return Problem(key="config", value=choice, constraint="there is no such configuration")
    near = nearest(choice, options)
    listed = f"{group} is one of {', '.join(options)}" if options else f"the group {group} has no choices"
    return Problem(key=group, value=choice, constraint="there is no such choice",
                   remedy=(f"did you mean {near}? " if near else "") + listed)  # fmt: skip


def _unreadable(error: OverrideParseException) -> Problem:
    text = str(error.override or "").strip() or "override"
    reason = str(error.message or error).splitlines()
    said = next((line for line in reason if not line.startswith(("Error parsing", "See "))), "")
    remedy = "write key=value" if "=" not in text else "put values with special characters in quotes: key='\"a,b\"'"
    return Problem(key=clean(text), constraint=f"cannot be read ({clean(said).strip()})", remedy=remedy)


def _composition(error: Exception, groups: list[str], arguments: Sequence[str]) -> Problem:
    text = str(error)
    if found := _OVERRIDE.search(text):
        if isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError) or "not in" in text:
            appended = _APPEND.search(text)
            tasks = [words.partition("=")[2] for words in arguments if words.startswith("task=")]
            return unknown(found["key"], appended["value"] if appended else "", groups=groups,
                           block=_looked_in(found["key"], error.__cause__),
                           task=tasks[-1] if tasks else "")  # fmt: skip
        return Problem(key=found["key"], constraint=_flat(str(error.__cause__ or text)))
    if found := _MERGE.search(text):
        return Problem(key=found["key"], value=found["value"], constraint="does not fit what stands there: "
                       f"{_flat(str(error.__cause__ or 'another kind of value'))}")  # fmt: skip
    if found := _AMBIGUOUS.search(text):
        key, value = found["key"], found["value"]
        return Problem(key=key, value=value, constraint="holds several values", remedy=f"to run each of them: -m {key}="
                       f"{value}; for a list: '{key}=[{value}]'")  # fmt: skip
    if found := _TWICE.search(text):
        group, choice = found["group"], found["choice"]
        return Problem(key=f"+{group}", value=choice, constraint="the group has a choice already",
                       remedy=f"leave out the +: {group}={choice}")  # fmt: skip
    if found := _THERE.search(text):
        key = found["key"]
        return Problem(key=f"+{key}", constraint="the key is there already", remedy=f"leave out the +: {key}=...")
    if found := _GONE.search(text):
        return Problem(key=f"~{found['key']}", constraint="there is no such key to delete")
    return Problem(key=str(getattr(error, "full_key", "") or "config"), constraint=_flat(text))


def _looked_in(key: str, error: object) -> Mapping[Any, Any]:
    """The block in which the last name of `key` was looked for; nothing where it is another name that is not there."""
    block, at = getattr(error, "parent_node", None), str(getattr(error, "full_key", ""))
    return block if isinstance(block, DictConfig) and as_typed(at) == key else {}


def _flat(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith(("full_key:", "object_type", "reference_")))
