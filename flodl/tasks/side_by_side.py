"""For task=compare: which runs are meant, what is asked, the tables; Markdown, JSON and a page in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from flodl.errors import ConfigError, FlodlError, Problem, TaskFindings
from flodl.record.folder import RunFolder, newest_run, was_refused
from flodl.record.sweep import SweepFolder
from flodl.record.text import short_path
from flodl.report.arm import Arm
from flodl.report.commands import were_typed
from flodl.report.compare import Comparison, Question, compare, comparison_json
from flodl.report.gather import arms_of_runs, arms_of_sweep, is_sweep
from flodl.report.leave import leave_comparison_page
from flodl.report.markdown import comparison_markdown
from flodl.report.tables import print_comparison
from flodl.report.terminal import terminal_console
from flodl.report.verdict import Criterion
from flodl.spec.reader import Reader
from flodl.spec.stop import TargetConfig
from flodl.tasks.status import switch
from flodl.tasks.which import OUTPUTS

__all__ = ["tell"]

COMPARED = "compare"  # the folder under outputs/


def tell(given: Mapping[str, Any]) -> None:
    """Compare and tell. Raises TaskFindings where no run ended well, ConfigError where something is not there."""
    as_json = switch("json", given["json"])
    question = _question(given)
    sweeps, runs = _named(given["runs"])
    folder = _folder(given["write"], sweeps if not runs else ())
    can_be_typed = True
    if len(sweeps) == 1 and not runs:
        arms = _arms_of(sweeps[0], folder)
    else:
        folders = _each_once([*_runs_of(sweeps), *runs])
        arms, can_be_typed = arms_of_runs(folders), were_typed(folders)
    _check(arms, question)
    comparison = compare(arms, question)
    if comparison.suggestion is not None and not can_be_typed:
        bare = msgspec.structs.replace(comparison.suggestion, commands=())
        comparison = msgspec.structs.replace(comparison, suggestion=bare)
    if as_json:
        sys.stdout.write(comparison_json(comparison).decode())
    else:
        print_comparison(comparison, terminal_console())
    if folder is not None:
        told = _written(folder, comparison)
        if not as_json:
            terminal_console().print(told, soft_wrap=True)
    if not any(arm.counts for arm in arms):
        error = TaskFindings("none of these runs ended well")
        error.is_told = not as_json
        raise error


def _written(folder: SweepFolder, comparison: Comparison) -> str:
    """Write it; where it lies, in words. Raises TaskFindings where it cannot be written, for it is shown already."""
    try:
        folder.write_comparison(comparison_json(comparison), comparison_markdown(comparison))
    except OSError as error:
        why = f"cannot be written: {error.strerror or error}"
        problem = Problem(key="write", value=str(folder.path), constraint=why, remedy="name another folder, or null")
        raise TaskFindings(str(problem)) from error
    page = leave_comparison_page(folder, comparison) or f"as a page: {short_path(folder.comparison_page_path)}"
    return f"comparison: {short_path(folder.comparison_markdown_path)}\n{page}"


def _question(given: Mapping[str, Any]) -> Question:
    """What is asked, checked; all problems at once."""
    problems: list[Problem] = []
    by, metric, epoch = given["by"], given["metric"], given["epoch"]
    if by != "auto" and by not in get_args(Criterion):
        problems.append(Problem(key="by", value=str(by), constraint="there is no such criterion",
                                remedy=f"auto, {', '.join(get_args(Criterion))}"))  # fmt: skip
    if metric is not None and (not isinstance(metric, str) or not metric):
        problems.append(Problem(key="metric", value=str(metric), constraint="must be a figure's name, or null"))
    if epoch is not None and (not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1):
        problems.append(Problem(key="epoch", value=str(epoch), constraint="must be a whole number from 1, or null"))
    reader = Reader()
    target = reader.value(TargetConfig, given["target"], "target")
    problems += reader.problems
    if problems:
        raise ConfigError(problems)
    return Question(by=None if by == "auto" else by, metric=metric, epoch=epoch, target=target)


def _check(arms: Sequence[Arm], question: Question) -> None:
    """Refuse figures and epochs that no run has."""
    counted = [arm for arm in arms if arm.counts]
    names = {"train_loss", *(name for arm in counted for point in arm.epochs for name in point.eval)}
    asked = {"metric": question.metric, "target.metric": question.target.metric}
    problems = [
        Problem(key=key, value=name, constraint="none of these runs has such a figure",
                remedy=f"they have {', '.join(sorted(names))}")
        for key, name in asked.items() if name is not None and name not in names
    ]  # fmt: skip
    most = max((arm.epochs[-1].epoch for arm in counted if arm.epochs), default=0)
    if question.epoch is not None and counted and question.epoch > most:
        problems.append(Problem(key="epoch", value=f"{question.epoch}", constraint=f"the longest run has {most}"))
    if problems and counted:
        raise ConfigError(problems)


def _named(value: object) -> tuple[list[SweepFolder], list[RunFolder]]:
    """The sweeps and the runs that are meant, each once. Raises ConfigError with everything that is not there."""
    texts = [str(text) for text in cast("list[object]", value)] if isinstance(value, list) else [str(value)]
    problems: list[Problem] = []
    sweeps: dict[Path, SweepFolder] = {}
    runs: list[RunFolder] = []
    for text in texts:
        found = list(_folders(text)) if text else []
        if not found:
            remedy = "name run folders (outputs/<date>/<time>-<tag>), sweeps, or last"
            problems.append(Problem(key="runs", value=text, constraint="no run folder lies there", remedy=remedy))
        for path in found:
            sweep, run = SweepFolder(path), RunFolder(path)
            if sweep.comparison_json_path.is_file() and not run.spec_path.exists():
                sweeps.setdefault(path.resolve(), sweep)
            else:
                runs.append(run)
    if not texts:
        problems.append(Problem(key="runs", value="[]", constraint="names none", remedy="name run folders, or last"))
    if problems:
        raise ConfigError(problems)
    return list(sweeps.values()), _each_once(runs)


def _folders(text: str) -> Iterator[Path]:
    """Every run or sweep that a text names: itself, those that lie below it, or else those that it compared."""
    if text == "last":
        yield from _newest()
        return
    path = Path(text).expanduser()
    root = Path(path.anchor) if path.is_absolute() else Path.cwd()
    pattern = str(path.relative_to(path.anchor)) if path.is_absolute() else str(path)
    starts = sorted(root.glob(pattern)) if any(mark in text for mark in "*?[") else [root / pattern]
    is_named = starts == [root / pattern]
    for start in starts:
        here = start.absolute()
        found = [path for path in _below(here) if (is_named and path == here) or not was_refused(RunFolder(path))]
        yield from found or ([here] if SweepFolder(here).comparison_json_path.is_file() else [])


def _below(folder: Path) -> Iterator[Path]:
    """Runs and sweeps; a comparison of runs that lie elsewhere is none of them."""
    if _is_one(folder):
        yield folder
    elif folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from _below(inner)


def _is_one(folder: Path) -> bool:
    return RunFolder(folder).spec_path.is_file() or _is_sweep(SweepFolder(folder))


def _is_sweep(sweep: SweepFolder) -> bool:
    return sweep.comparison_json_path.is_file() and is_sweep(sweep)


def _newest() -> Iterator[Path]:
    """The newest run under outputs/, or the sweep that it is an arm of."""
    try:
        newest = newest_run(Path.cwd() / OUTPUTS).path
    except FlodlError:
        return
    yield newest.parent if _is_sweep(SweepFolder(newest.parent)) else newest


def _each_once(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """By where they really lie."""
    found: dict[Path, RunFolder] = {}
    for run in runs:
        found.setdefault(run.path.resolve(), run)
    return list(found.values())


def _arms_of(sweep: SweepFolder, folder: SweepFolder | None) -> list[Arm]:
    """Its arms, with folders that are found from where the comparison goes."""
    arms = arms_of_sweep(sweep)
    if folder is not None and folder.path.resolve() == sweep.path.resolve():
        return arms
    return [msgspec.structs.replace(arm, folder=str(sweep.path / arm.folder)) if arm.folder else arm for arm in arms]


def _runs_of(sweeps: Sequence[SweepFolder]) -> Iterator[RunFolder]:
    for sweep in sweeps:
        for arm in arms_of_sweep(sweep):
            if arm.folder and RunFolder(sweep.path / arm.folder).spec_path.exists():
                yield RunFolder(sweep.path / arm.folder)


def _folder(value: object, sweeps: Sequence[SweepFolder]) -> SweepFolder | None:
    if value is None:
        return None
    if value != "auto":
        return SweepFolder(Path(str(value)).expanduser())
    if len(sweeps) == 1:
        return sweeps[0]
    return SweepFolder(Path.cwd() / OUTPUTS / COMPARED / f"{datetime.now().astimezone():%Y-%m-%d-%H-%M-%S}")
