"""Callables as a config names them: by import path. Which of them have one, and how they are called.

A class, a top-level function, a functools.partial of either with plain keyword arguments, and functions of the
program's own script (as file and name) have one: they mean the same on every host. What has none is `live`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from flodl.door.places import MAIN, is_guarded, is_own, is_typed_in, script
from flodl.engine.trust import Trust
from flodl.errors import Problem
from flodl.spec.component import Component, component, component_tree
from flodl.spec.trust import ALLOWED_PACKAGES, is_under

__all__ = ["Live", "Names", "is_factory", "live_tree", "path_of", "takes_optimizer", "words_of"]


@dataclass(frozen=True)
class Live:
    """Something without an import path. thing: what it is. called: a factory, else it is what is wanted itself. words:
    what it is, for people."""

    key: str
    thing: Any
    called: bool
    words: str

    @property
    def place(self) -> str:
        """Its key as a rank looks for it: with a dot in it, it could be an import path of somebody's `dataset`."""
        return self.key.replace(".", "/")


@dataclass
class Names:
    """Gathers what was found while a job's callables are named: problems, what is live, what was trusted by hand."""

    problems: list[Problem] = field(default_factory=list[Problem])
    live: list[Live] = field(default_factory=list[Live])
    trusted: list[str] = field(default_factory=list[str])

    def tree(self, key: str, given: Any) -> dict[str, Any] | str | None:
        """The Hydra form of what was given for `key`; a name of a shipped choice as it is; None: told as a problem."""
        if isinstance(given, Component):
            return component_tree(given)
        if isinstance(given, Mapping):
            return dict(cast("Mapping[str, Any]", given))
        if isinstance(given, str):
            return self._named(key, given)
        callee, arguments = _unwrapped(key, given)
        path = path_of(callee) if callee is not None else None
        made = None if path is None else self._plain(key, path, callee, arguments)
        if made is not None:
            return made
        self.live.append(Live(key, given, _is_called(key, given), words_of(given)))
        return live_tree(self.live[-1])

    def _named(self, key: str, text: str) -> dict[str, Any] | str | None:
        """A dotted name: how it is called depends on what it names."""
        if "." not in text:
            return text
        found, trouble = _located(text)
        if found is None:
            told = Problem(key=key, value=text, constraint=f"cannot be imported here: {trouble}",
                           remedy="it is the path of a class or function, such as train.make_model")  # fmt: skip
            self.problems.append(told)
            return None
        return _tree(key, text, found, {})

    def _plain(self, key: str, path: str, callee: Any, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The tree, where the arguments are plain data; else the whole is live."""
        tree = _tree(key, path, callee, arguments)
        if component(tree, key)[1]:
            return None
        if not is_under(path, ALLOWED_PACKAGES) and not Trust().accepts(callee, path):
            self.trusted.append(path)  # the object itself was handed over: nobody but the program could have done that
        return tree


def path_of(callee: Any) -> str | None:
    """The shortest import path that leads to this very class or function; None where none does."""
    module, name = getattr(callee, "__module__", None), getattr(callee, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    if _led(sys.modules.get(module), name) is not callee:
        return None
    if module == MAIN:
        program = script()
        return None if program is None or is_guarded(name) or is_typed_in(callee) else f"{program}.{name}"
    if is_own(module):
        return None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        place = ".".join(parts[:end])
        if _led(sys.modules.get(place), name) is callee:
            return f"{place}.{name}"
    return None


def is_factory(given: Any) -> bool:
    """Whether it is something to be called: a function, a class, or a partial of one."""
    return inspect.isroutine(given) or inspect.isclass(given) or isinstance(given, functools.partial)


def takes_optimizer(kind: Any) -> bool:
    """Whether a class is one of torch's schedulers."""
    torch = sys.modules.get("torch.optim.lr_scheduler")
    return torch is not None and issubclass(kind, torch.LRScheduler)


def words_of(given: Any) -> str:
    """What a live thing is, for people. Never what could be an import path: ranks look where such a text leads."""
    callee = given.func if isinstance(given, functools.partial) else given
    if inspect.isclass(callee):
        return f"{callee.__qualname__} (of {callee.__module__})"
    code = getattr(callee, "__code__", None)
    if code is not None:
        file = Path(code.co_filename)
        return f"{callee.__qualname__} ({file.name if file.is_file() else 'typed in'}:{code.co_firstlineno})"
    return f"an object of type {type(given).__name__}"


def live_tree(live: Live) -> dict[str, Any]:
    """Where a rank that was forked from the program finds it."""
    tree: dict[str, Any] = {"_target_": f"flodl.engine.held.{'made' if live.called else 'given'}"}
    if live.called and _is_partial(live.key, live.thing):
        tree["_partial_"] = True
    return {**tree, "key": live.place, "words": live.words}


# ---------------------------------------------------------------------------------------------------------- parts


def _tree(key: str, path: str, callee: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    head: dict[str, Any] = {"_target_": path}
    if _is_partial(key, callee):
        head["_partial_"] = True
    return head | dict(arguments)


def _is_partial(key: str, callee: Any) -> bool:
    """True where the callee is what the engine calls later, with arguments of its own."""
    if key in ("model", "dataset", "dataset.train", "dataset.eval"):
        return False
    if key == "scheduler" and inspect.isclass(callee):
        return takes_optimizer(callee)
    return key == "optim" or not inspect.isclass(callee)


def _is_called(key: str, given: Any) -> bool:
    """True for a live factory; a live data set, step, schedule or function is handed over as it is."""
    if key in ("model", "optim"):
        return True
    return is_factory(given) if key == "scheduler" or key.startswith("dataset") else inspect.isclass(given)


def _unwrapped(key: str, given: Any) -> tuple[Callable[..., Any] | None, dict[str, Any]]:
    """The class or function, and the keyword arguments that it was given; None for anything else."""
    arguments: dict[str, Any] = {}
    if key == "scheduler" and dataclasses.is_dataclass(given) and not isinstance(given, type):
        said = ((part, getattr(given, part.name)) for part in dataclasses.fields(given) if part.init)
        return type(given), {part.name: value for part, value in said if value != part.default}
    if isinstance(given, functools.partial):
        found = cast("functools.partial[Any]", given)
        if found.args:
            return None, {}
        given, arguments = found.func, dict(found.keywords)
    return (given, arguments) if inspect.isclass(given) or inspect.isfunction(given) else (None, {})


def _led(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _located(path: str) -> tuple[Any, str]:
    """What a dotted path leads to, through classes too; None and why where it leads nowhere."""
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        return None, "it is no dotted name"
    for end in range(len(parts) - 1, 0, -1):
        place = ".".join(parts[:end])
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if end > 1 and error.name is not None and f"{place}.".startswith(f"{error.name}."):
                continue  # there is no such module: a class of the one above, perhaps
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything
            return None, f"{type(error).__name__}: {error}"
        name = ".".join(parts[end:])
        found = _led(module, name)
        return found, "" if found is not None else f"{place} has no {name}"
    return None, "there is no such module"
