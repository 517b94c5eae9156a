"""Every key that a job has, spelt as on the command line: for suggestions, help and the tests that miss none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from flodl.spec.component import Component
from flodl.spec.job import JobSpec
from flodl.spec.reader import hints, item_kind, struct_members
from flodl.spec.value import Value

__all__ = ["as_typed", "is_component_key", "job_keys"]


@cache
def job_keys() -> dict[str, Any]:
    """Dotted key -> type hint of each leaf; list items by number (``cluster.workers.0.host``); components are whole."""
    return dict(_walk(JobSpec, ""))


def is_component_key(key: str) -> bool:
    """True for keys such as ``optim.lr``: arguments of a component, which only its callee knows."""
    return any(hint is Component and key.startswith(f"{name}.") for name, hint in job_keys().items())


def as_typed(key: str) -> str:
    """The place ``workers[0].host`` as an override names it: ``workers.0.host``."""
    return key.replace("[", ".").replace("]", "")


def _walk(kind: type[Value], key: str) -> Iterator[tuple[str, Any]]:
    tag = kind.__struct_config__.tag_field
    if tag:
        yield f"{key}{tag}", str
    for name, hint in hints(kind).items():
        item = item_kind(hint)
        kinds = (item,) if item else struct_members(hint)
        place = f"{key}{name}.0." if item else f"{key}{name}."
        if kinds and kinds[0] is not Component:
            for member in kinds:
                yield from _walk(member, place)
        else:
            yield f"{key}{name}", hint
