"""What is told of a run that an error has ended."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from flodl.errors import Interrupted, NotReady, RunFailed, RunLost
from flodl.record.folder import RunFolder
from flodl.story import Story
from tests.decide.hands import Hand
from tests.record.bundles import save

FULL = OSError(errno.ENOSPC, "No space left on device", "/runs/a/journal.jsonl")


def test_an_error_means_what_the_run_had_come_to_when_it_ended_it(tmp_path: Path) -> None:
    hand, folder = Hand(), RunFolder(tmp_path / "run")
    story = Story(folder, time.monotonic())
    assert (type(story.failure(FULL)), story.totals()) == (NotReady, None)
    assert str(story.failure(KeyboardInterrupt())) == "a signal before anything was started"
    story.meet(hand.job, hand.places)
    story.add_up = hand.coordinator.totals
    hand.start()
    story.observe(hand.report(0), hand.said)  # the first windows
    assert type(story.failure(FULL)) is RunLost, "nothing was saved"
    save(folder.bundles(hand.job.checkpoint), 1)
    assert type(story.failure(FULL)) is RunFailed
    told = story.failure(KeyboardInterrupt())
    assert (type(told), str(told)) == (Interrupted, "a signal while the run was ended")
    hand.round()
    so_far = story.totals()
    assert so_far is not None
    assert so_far.rounds == 1


def test_a_sum_that_cannot_be_made_hides_no_error(tmp_path: Path) -> None:
    story = Story(RunFolder(tmp_path), 0.0)
    story.add_up = lambda: 1 // 0  # type: ignore[assignment,return-value]
    assert story.totals() is None
