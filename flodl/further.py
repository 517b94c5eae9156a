"""What else is wrong with a command line: Hydra stops at the first word that cannot be applied.

That word is left out and the others are composed again, until they can be; then the values among them are judged. What
the left out word might have brought is not: what hangs on it is for the next try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flodl import hooks
from flodl.compose import job_of, resolve
from flodl.errors import ConfigError, FlodlError, Problem
from flodl.explain import explain
from flodl.record.text import clean
from flodl.spec.keys import as_typed
from flodl.spec.suggest import nearest
from flodl.tasks import TASKS, Task
from flodl.tasks.again import MANY_GROUPS

__all__ = ["explained", "value_problems"]

_OTHER_TREES = ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd", "--multirun", "-m")
Judge = Callable[[Any, Sequence[str]], Iterable[Problem]]


def explained(
    error: Exception, groups: list[str], arguments: Sequence[str], judge: Judge = lambda config, words: ()
) -> FlodlError | None:
    """As `explain`, with everything else that is wrong.

    judge: tells what is wrong with a tree of which the words (the second) could be applied.
    """
    first = found = explain(error, groups, arguments)
    if any(text.startswith(_OTHER_TREES) for text in arguments):
        return first
    words, problems, is_whole = list(arguments), list[Problem](), True
    while isinstance(found, ConfigError):
        problems.extend(found.problems)
        choices = _choices(found.problems, groups)
        is_whole = is_whole and not choices
        left = _without(words, found.problems, choices)
        if len(left) == len(words) or not choices.isdisjoint((*MANY_GROUPS, "task", "hydra")):
            return ConfigError(problems)
        words = _overrides(left)
        try:
            config = hooks.composed(words)
        except Exception as another:  # noqa: BLE001 - what `explain` does not know was not asked for
            found = explain(another, groups, words)
        else:
            return ConfigError([*problems, *(judge(config, words) if is_whole else ())])
    return ConfigError(problems) if problems else first


def value_problems(config: Any, words: Sequence[str]) -> list[Problem]:
    """What is wrong with the values of the job that was typed: of what a choice brings nothing is said beside it."""
    try:
        tree = resolve(config)
        task = TASKS.get(str(tree["task"]))
        if isinstance(task, Task) and task.job_of is None and not task.from_spec:
            job_of(tree, ("task", *task.arguments))
    except ConfigError as error:
        typed = {_key(text) for text in words}
        return [problem for problem in error.problems if as_typed(problem.key) in typed]
    return []


def _overrides(arguments: Sequence[str]) -> list[str]:
    return [text for text in arguments if not text.startswith("-") and ("=" in text or text.startswith("~"))]


def _choices(problems: Iterable[Problem], groups: Iterable[str]) -> set[str]:
    """The groups of which no choice can be had, misspelt ones included: what is typed beneath hangs on it."""
    names = [problem.key.lstrip("+~") for problem in problems]
    return {near for name in names if "." not in name and (near := nearest(name, groups, cutoff=0.7))}


def _without(words: Sequence[str], problems: Iterable[Problem], choices: Iterable[str]) -> list[str]:
    told = {problem.key.lstrip("+~") for problem in problems}
    beneath = tuple(f"{choice}." for choice in choices)
    return [text for text in words
            if not told & {_key(text), clean(text)} and not _key(text).startswith(beneath)]  # fmt: skip


def _key(text: str) -> str:
    return text.lstrip("+~").partition("=")[0].partition("@")[0]
