"""How an interrupted run goes on, said in what works for that very run: a command, or a word in its program."""

from __future__ import annotations

from pathlib import Path

from flodl.record.text import typed
from flodl.spec.job import JobSpec

__all__ = ["how_it_goes_on"]


def how_it_goes_on(job: JobSpec, folder: Path, epochs_done: int = 0) -> str:
    """One line. What lives in a program is known to no command; what was trusted for a run is typed anew. A signal in
    the last round leaves nothing to go on with: to resume that run would be refused."""
    if epochs_done >= job.trainer.num_epochs:
        return f"nothing is left to go on with: all {epochs_done} epochs are done"
    live = [key for key, component in job.components.items() if component.is_live]
    if live:
        return (
            f"to go on, run the program again with resume_from={str(folder)!r} in its TrainerConfig: its "
            f"{', '.join(live)} {'live' if len(live) > 1 else 'lives'} in it alone, which task=resume cannot know"
        )
    words = {"run": str(folder)} | ({"trusted_targets": job.trusted_targets} if job.trusted_targets else {})
    return f"python -m flodl task=resume {' '.join(typed(key, value) for key, value in words.items())}"
