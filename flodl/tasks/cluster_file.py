"""Changes one value of a user's cluster file and leaves every other character of it as it was, comments included."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from flodl.errors import FlodlError
from flodl.record.files import write_atomically

__all__ = ["Key", "scalar", "set_value", "with_value"]

Key = str | int
_PLAIN = re.compile(r"[\w/][\w/.+@-]*( [\w/.+@-]+)*")


def set_value(path: Path, keys: Sequence[Key], value: str) -> None:
    """Set it in the file, whole or not at all; its rights stay. FlodlError where the text cannot be changed safely."""
    text = path.read_text(encoding="utf-8")
    try:
        changed = with_value(text, keys, value)
    except FlodlError as error:
        raise FlodlError(f"{path}: {error}") from error
    mode = path.stat().st_mode & 0o777
    write_atomically(path.resolve(), changed.encode())
    path.chmod(mode)


def with_value(text: str, keys: Sequence[Key], value: str) -> str:
    """The text with keys[0].keys[1]... = value, for example ("workers", 1, "python").

    Raises FlodlError where that cannot be done by changing this one place: the result is read back and compared.
    """
    shown = ".".join(str(key) for key in keys)
    try:
        wanted = _changed(_unshared(yaml.safe_load(text)), keys, value)
        found = _edited(text, yaml.compose(text, Loader=yaml.SafeLoader), keys, value)
        if yaml.safe_load(found) == wanted:
            return found
    except (yaml.YAMLError, LookupError, TypeError) as error:
        raise FlodlError(f"cannot be changed at {shown}: {error}; write it by hand: {scalar(value)}") from error
    raise FlodlError(f"cannot be changed at {shown} without touching more; write it by hand: {scalar(value)}")


def scalar(value: str) -> str:
    """Text as YAML for one line: as it is where YAML reads it as text, else in quotes."""
    if _PLAIN.fullmatch(value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _changed(tree: Any, keys: Sequence[Key], value: str) -> Any:
    """The plain data as it shall read: only text is added, so what is missing on the way becomes a map."""
    node = tree
    for key in keys[:-1]:
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]
    node[keys[-1]] = value
    return tree


def _unshared(tree: Any) -> Any:
    """A copy in which what an anchor names stands in each place by itself: changing one does not change the others."""
    if isinstance(tree, dict):
        return {key: _unshared(value) for key, value in tree.items()}
    return [_unshared(value) for value in tree] if isinstance(tree, list) else tree


def _edited(text: str, node: yaml.Node | None, keys: Sequence[Key], value: str) -> str:
    for depth, key in enumerate(keys):
        found = _child(node, key)
        rest = keys[depth + 1 :]
        if found is None or (rest and isinstance(found, yaml.ScalarNode)):
            new = scalar(value)
            for name in reversed(rest):
                new = f"{{{name}: {new}}}"
            return _replaced(text, found, new) if found is not None else _added(text, node, f"{key}: {new}")
        node = found
    assert node is not None
    return _replaced(text, node, scalar(value))


def _child(node: yaml.Node | None, key: Key) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        return node.value[key]
    if not isinstance(node, yaml.MappingNode):
        raise TypeError(f"{key} is in no map")
    return next((below for name, below in node.value if name.value == str(key)), None)


def _replaced(text: str, node: yaml.Node, new: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    blank = " " if start == end and text[:start][-1:] == ":" else ""  # `python:` without a value
    return text[:start] + blank + new + text[end:]


def _added(text: str, node: yaml.Node | None, entry: str) -> str:
    """A new entry behind the first one of a map: there is always one in a map that is a host's or holds variables."""
    if not isinstance(node, yaml.MappingNode) or (node.flow_style is False and not node.value):
        raise TypeError("there is no map to add to")
    if node.flow_style:
        at = node.end_mark.index - 1
        return text[:at] + (", " if node.value else "") + entry + text[at:]
    name, first = node.value[0]
    column = name.start_mark.column
    at = text.find("\n", first.end_mark.index if isinstance(first, yaml.ScalarNode) else name.start_mark.index)
    if not isinstance(first, yaml.ScalarNode):  # in front of it: what it holds may go on for pages
        at = name.start_mark.index
        return f"{text[:at]}{entry}\n{' ' * column}{text[at:]}"
    line = f"{' ' * column}{entry}\n"
    return f"{text}\n{line}" if at < 0 else f"{text[: at + 1]}{line}{text[at + 1 :]}"
