"""Every row of the table of faults (docs/faults.md) is shown by a test that carries its number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows_of_tests() -> Iterator[tuple[int, str]]:
    """(row, test) of every marker on a test."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
                        yield from ((ast.literal_eval(row), f"{path.name}::{node.name}") for row in mark.args)


def test_every_row_of_the_table_is_shown_by_a_test() -> None:
    table = (ROOT / "docs/faults.md").read_text()
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)}
    assert rows == set(range(1, 28))
    shown = {row for row, _ in rows_of_tests()}
    assert rows - shown == set(), "no test shows these"
    assert shown - rows == set(), "there are no such rows"
