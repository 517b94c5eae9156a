"""What a config tree may call, judged by the object behind the name. (flodl.spec.trust judges the name alone.)

A name proves nothing: ``torch.nn.modules.module.torch.hub.load`` lies under torch.nn and is torch.hub.load. So a
target is accepted only if what it resolves to is a class or function whose own ``__module__`` is allowed, and the
resolved object itself, not its name, goes into the tree that is called. Nothing outside the allowed packages and the
project folder is ever imported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from flodl.errors import ConfigError, NotReady, Problem
from flodl.spec.component import Component
from flodl.spec.suggest import nearest
from flodl.spec.tree import mapped
from flodl.spec.trust import ALLOWED_PACKAGES, Reference, as_reference, is_under, refusal

__all__ = ["Trust", "checked"]


class Trust:
    """What may be called: the allowed packages, `trusted` packages or full names, and modules in the `project` folder.

    An environment that lies inside the project folder (envs/, .venv) is no part of the project. host: where this is,
    for a rank: the controller has accepted the names, so a module that is not there is this host's lack.
    """

    def __init__(self, trusted: Iterable[str] = (), project: str | Path = "", host: str = "") -> None:
        self.host = host
        self.trusted = tuple(trusted)
        self.packages = (*ALLOWED_PACKAGES, *self.trusted)
        self.project = Path(project or ".").resolve()
        prefixes = [Path(p).resolve() for p in (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))]
        self._environments = tuple(prefix for prefix in prefixes if prefix.is_relative_to(self.project))

    def owns(self, file: str | None) -> bool:
        """True where a module's file belongs to the project."""
        if not file or not Path(file).is_absolute():  # torch.ops calls its file _ops.py, wherever one is
            return False
        path = Path(file).resolve()
        if not path.is_relative_to(self.project) or any(path.is_relative_to(env) for env in self._environments):
            return False
        return not {"site-packages", "dist-packages"} & set(path.parts)

    def may_import(self, path: str) -> bool:
        """True where looking for `path` runs no code but that of allowed packages and the project."""
        return is_under(path, self.packages) or self._is_project_root(path.partition(".")[0])

    def accepts(self, found: object, path: str) -> bool:
        """True where `found`, which `path` led to, may be called."""
        if path in self.trusted and callable(found):
            return True
        if inspect.ismethod(found):  # a class method: Model.from_pretrained
            return self.accepts(found.__self__, path) and self.accepts(found.__func__, path)
        if not (inspect.isclass(found) or inspect.isfunction(found)):
            return False
        if is_under(f"{found.__module__}.{found.__qualname__}", self.packages):
            return True
        return self.owns(getattr(sys.modules.get(found.__module__), "__file__", None))

    def _is_project_root(self, root: str) -> bool:
        """True where the top-level module `root`, if it were imported, would come from the project folder alone."""
        module = sys.modules.get(root)
        spec = getattr(module, "__spec__", None) if module is not None else importlib.util.find_spec(root)
        if spec is None:
            return self.owns(getattr(module, "__file__", None))
        if spec.has_location:
            return self.owns(spec.origin)
        folders = list(spec.submodule_search_locations or ())  # a package without __init__.py may be spread out
        return bool(folders) and all(map(self.owns, folders))


class _RefusedError(Exception):
    """A reference is refused, and why. Never leaves this room.

    remedy: what to do where nobody's trust would help; None where it would.
    """

    def __init__(self, constraint: str, remedy: str | None = None) -> None:
        super().__init__(constraint)
        self.remedy = remedy


class _AbsentError(Exception):
    """This host lacks a module, and what that means. Never leaves this room."""


def checked(components: Mapping[str, Component], trust: Trust) -> dict[str, dict[str, Any]]:
    """The components as trees for hydra's instantiate, every ``_target_`` replaced by the object that was checked.

    components: dotted key -> component. Raises ConfigError with everything that is refused in any of them, NotReady
    where nothing is and this host lacks a module.
    """
    problems: list[Problem] = []
    absent: list[str] = []

    def visit(key: str, text: str) -> Any:
        if "${" in text or text == "???":  # would come alive when the tree is instantiated
            problems.append(Problem(key=key, value=text, constraint="is not resolved", remedy="give it a plain value"))
            return text
        reference = as_reference(key, text)
        if reference is None:
            return text
        try:
            if reference.is_target:
                return _opaque(_resolved(reference, trust))
            _look_through(reference.path, trust)
        except _RefusedError as refused:
            problems.append(_problem(reference, refused))
        except _AbsentError as lack:
            absent.append(f"{key}={text}: {lack}")
        return text

    trees = {
        key: mapped({**component.args, "_target_": component.target}, key, visit)
        for key, component in components.items()
    }
    if problems:
        raise ConfigError(problems)
    if absent:
        remedy = "copy the project there, run with cluster.deploy.code=rsync, or install what is missing"
        raise NotReady("\n".join(f"{line}; {remedy}" for line in absent))
    return trees


def _problem(reference: Reference, refused: _RefusedError) -> Problem:
    if refused.remedy is None:
        return refusal(reference, str(refused))
    return Problem(key=reference.key, value=reference.path, constraint=str(refused), remedy=refused.remedy)


def _resolved(reference: Reference, trust: Trust) -> object:
    """The object that a target names. Raises _RefusedError and _AbsentError."""
    path = reference.path
    root, dot, _ = path.partition(".")
    if not dot:  # no host has what no path names
        raise _RefusedError("is no import path, such as package.module.name", "name the module too")
    if trust.host and root not in sys.modules and importlib.util.find_spec(root) is None:
        place = f"it is not in {trust.project}, nor installed there"
        raise _AbsentError(f"the module {root} is missing on {trust.host}: {place}")
    if not trust.may_import(path):
        raise _RefusedError("lies outside the packages that a config may call")
    try:
        found = _locate(path)
    except (ImportError, AttributeError) as error:
        lacking = error.name if trust.host and isinstance(error, ModuleNotFoundError) else None
        if lacking and not is_under(path, [lacking]):  # what the module itself imports
            raise _AbsentError(f"it needs the module {lacking}, which is missing on {trust.host}") from error
        raise _RefusedError(f"cannot be found: {error}", _meant(path)) from error
    except ConfigError:  # a program that starts a run whenever it is imported
        raise
    except Exception as error:
        raise _RefusedError(f"fails while it is imported: {type(error).__name__}: {error}", "") from error
    if not trust.accepts(found, path):
        raise _RefusedError(f"is {_describe(found)}, which a config may not call")
    return found


def _opaque(target: Any) -> Any:
    """The target, or where OmegaConf would take it for a schema (dataclasses, attrs) a function that only calls it."""
    callee = target
    if not (dataclasses.is_dataclass(target) or hasattr(target, "__attrs_attrs__")):
        return target

    def call(*args: Any, **kwargs: Any) -> Any:
        return callee(*args, **kwargs)

    return functools.update_wrapper(call, callee, updated=())


def _look_through(path: str, trust: Trust) -> None:
    """Raise _RefusedError for a string argument that leads to code which a config may not call.

    Nothing of the project is imported for it: a metric called train.loss must not run train.py.
    """
    root = path.partition(".")[0]
    is_allowed = is_under(path, trust.packages)
    if not is_allowed and root not in sys.modules:
        if importlib.util.find_spec(root) is not None and not trust.may_import(path):
            raise _RefusedError(f"reads like an import path of {root}, which a callee could import")
        return
    try:
        found = _locate(path) if is_allowed else _locate_loaded(path)
    except Exception:  # noqa: BLE001  whatever the reason, it leads nowhere: a plain string
        return
    if isinstance(found, ModuleType):
        is_right = trust.may_import(found.__name__)
    else:
        is_right = not callable(found) or trust.accepts(found, path)
    if not is_right:
        raise _RefusedError(f"reads like the import path of {_describe(found)}, which a config may not call")


def _locate(path: str) -> object:
    """What a dotted path leads to: the longest importable module, then attributes.

    Raises ImportError or AttributeError where it leads nowhere, and whatever an imported module raises.
    """
    place, *names = path.split(".")
    found: object = importlib.import_module(place)
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError:
            # Below a module that was reached under another name than its own nothing is imported: it may be foreign.
            if not isinstance(found, ModuleType) or found.__name__ != place:
                raise
            found = importlib.import_module(f"{place}.{name}")
        place = f"{place}.{name}"
    return found


def _meant(path: str) -> str:
    """What to do about a path that leads nowhere: the name that was meant there, among those that are loaded."""
    root, *names = path.split(".")
    found: object = sys.modules.get(root)
    for name in names if found is not None else ():
        if not hasattr(found, name):
            near = nearest(name, [word for word in dir(found) if not word.startswith("_")])
            return f"did you mean {near}?" if near else ""
        found = getattr(found, name)
    return ""


def _locate_loaded(path: str) -> object:
    """What a dotted path leads to among the modules that are loaded already. Raises AttributeError."""
    root, *names = path.split(".")
    found: object = sys.modules[root]
    for name in names:
        found = getattr(found, name)
    return found


def _describe(found: object) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    return f"{module}.{name}" if module and name else f"an object of type {type(found).__name__}"
