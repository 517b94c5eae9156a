"""Where a program's modules come from, and which of them a rank could import too.

A rank works in the program's working folder, with what this interpreter finds by itself. It has neither the folder of a
script that is run from elsewhere, nor what the program has put into sys.path.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from flodl.door.guarded import guarded_names

__all__ = ["MAIN", "is_guarded", "is_own", "is_typed_in", "script"]

MAIN = "__main__"


def is_own(module: str) -> bool:
    """Whether a module is found by this program and not by a rank."""
    return _place(module) in _own_places()


def is_guarded(name: str) -> bool:
    """Whether something of the program is bound only where it is the program, so that a rank would not find it."""
    file = getattr(sys.modules[MAIN], "__file__", None)
    return isinstance(file, str) and name.partition(".")[0] in guarded_names(file)


def is_typed_in(callee: object) -> bool:
    """Whether something of the program was written after it was read: typed in (`python -i`), or brought in by %run.

    The program's file may have another one of that name. Judged by what the program itself has written under this name:
    not by functions that a class has from elsewhere, or that were made for it (dataclasses, attrs, named tuples).
    """
    file = getattr(sys.modules[MAIN], "__file__", None)
    within = vars(callee).values() if isinstance(callee, type) else [callee]
    parts = [cast("Any", inspect.unwrap(part)) for part in within if inspect.isfunction(part)]
    codes = [part.__code__ for part in parts if getattr(part, "__module__", None) == MAIN and hasattr(part, "__code__")]
    name = f"{cast('Any', callee).__qualname__}."
    written = {Path(code.co_filename).name for code in codes if f"{code.co_qualname}.".startswith(name)}
    written.discard("<string>")
    return isinstance(file, str) and bool(written) and Path(file).name not in written


def script() -> str | None:
    """The program's own file as a module of the working folder; None where no rank could import it."""
    main = sys.modules[MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return None if spec.name == MAIN else str(spec.name)  # a folder or an archive that is run has no other name
    if not isinstance(file, str):
        return None
    path, here = Path(file).resolve(), Path.cwd().resolve()
    if path.suffix != ".py" or not path.is_relative_to(here):
        return None
    if path.parent in _own_places() and any(_place(name) == path.parent for name in {*sys.modules} - {MAIN}):
        return None  # it needs what lies beside it
    parts = path.relative_to(here).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None


def _own_places() -> set[Path]:
    mine = {Path(entry).resolve() for entry in sys.path}
    return {place for place in mine if place.is_dir()} - {Path.cwd().resolve(), *_usual_places()}


@functools.cache
def _usual_places() -> frozenset[Path]:
    """Where this interpreter imports from when it begins."""
    command = [sys.executable, "-P", "-c", "import sys; print('\\0'.join(sys.path), end='')"]
    done = subprocess.run(command, capture_output=True, check=False)
    return frozenset(Path(os.fsdecode(entry)).resolve() for entry in done.stdout.split(b"\0") if entry)


def _place(module: str) -> Path | None:
    """The folder of sys.path that a module comes from."""
    file = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file).resolve()
    return path.parent.parent if path.stem == "__init__" else path.parent
