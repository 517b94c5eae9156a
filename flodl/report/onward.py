"""How an interrupted run goes on, said in what works for that very run: a command, or a word in its program."""

from __future__ import annotations

from pathlib import Path

from flodl.decide.resuming import epochs_done
from flodl.errors import ConfigError, FlodlError, NotReady
from flodl.record.fate import Fate
from flodl.record.folder import RunFolder
from flodl.record.origin import origin_store
from flodl.record.result import Result
from flodl.record.text import typed
from flodl.spec.codec import load_spec
from flodl.spec.counting import all_are
from flodl.spec.job import JobSpec

__all__ = ["ended_early", "how_it_begins_again", "how_it_goes_on", "onward", "told_onward"]


def ended_early(found: Result) -> bool:
    """Whether more was to come when the run ended: it was interrupted, or failed once it was under way."""
    return found.status in ("interrupted", "failed") and found.exit_code not in (ConfigError.exit_code,
                                                                                 NotReady.exit_code)  # fmt: skip


def onward(folder: RunFolder, job: JobSpec) -> str:
    """How the run goes on from its newest bundle, or from that which it went on from itself; "" where there is none."""
    try:
        bundle = origin_store(folder.path, job.checkpoint.stem).newest()
    except (FlodlError, OSError):
        return ""
    return "" if bundle is None else how_it_goes_on(job, folder.path, epochs_done(bundle.meta.coordinator))


def told_onward(folder: RunFolder, found: Fate) -> str:
    """The same for whoever looks at a run later; "" also where it runs, or ended as it should."""
    was_cut = found.kind == "ended" if found.result is None else ended_early(found.result)
    try:
        return onward(folder, load_spec(folder.spec_path)) if was_cut else ""
    except (FlodlError, OSError):
        return ""


def how_it_goes_on(job: JobSpec, folder: Path, done: int = 0) -> str:
    """One line. What lives in a program is known to no command; what was trusted for a run is typed anew. A signal in
    the last round leaves nothing to go on with: to resume that run would be refused."""
    if done >= job.trainer.num_epochs:
        return f"nothing is left to go on with: {all_are(done, 'epoch', 'done')}"
    live = [key for key, component in job.components.items() if component.is_live]
    if live:
        return (
            f"to go on, run the program again with resume_from={str(folder)!r} in its TrainerConfig: its "
            f"{', '.join(live)} {'live' if len(live) > 1 else 'lives'} in it alone, which task=resume cannot know"
        )
    return _command(job, "resume", run=str(folder))


def how_it_begins_again(folder: RunFolder) -> str:
    """Of a run that left nothing to go on from."""
    try:
        job = load_spec(folder.spec_path)
    except FlodlError:
        return "start it anew"
    if any(component.is_live for component in job.components.values()):
        return "run its program again"
    return f"to start it again: {_command(job, 'rerun', spec=str(folder.spec_path))}"


def _command(job: JobSpec, task: str, **words: object) -> str:
    known = words | ({"trusted_targets": job.trusted_targets} if job.trusted_targets else {})
    return f"python -m flodl task={task} {' '.join(typed(key, value) for key, value in known.items())}"
