"""What a program binds under `if __name__ == "__main__":` alone: who imports it as a module does not have that."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["guarded_names"]


@functools.cache
def guarded_names(program: str) -> frozenset[str]:
    """Names of a program's file that are there only where it is the program. Empty where it cannot be read."""
    try:
        body = ast.parse(Path(program).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    guards = [node for node in body if isinstance(node, ast.If) and _asks_who_runs(node.test)]
    others = [node for node in body if node not in guards]
    inside = set(_bound([node for guard in guards for node in guard.body]))
    return frozenset(inside - set(_bound([*others, *(node for guard in guards for node in guard.orelse)])))


def _asks_who_runs(test: ast.expr) -> bool:
    words = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    values = {node.value for node in ast.walk(test) if isinstance(node, ast.Constant)}
    return "__name__" in words and "__main__" in values


def _bound(body: Sequence[ast.AST]) -> Iterator[str]:
    """Names that these statements bind in the module; what lies within functions and classes is their own."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _bound([*ast.iter_child_nodes(node)])
