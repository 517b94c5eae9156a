"""The first cause arrives, whatever the user's code raised."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from flodl.decide.messages import RankFailed
from flodl.engine.failure import trace_of, words_of
from flodl.errors import NotReady
from flodl.spec.component import Component
from tests.engine.test_worker import JOB, life

pytestmark = pytest.mark.own_process


class Speechless(Exception):
    """Has no words."""

    def __str__(self) -> str:
        raise ValueError("no words")


def leaves(**_: Any) -> NoReturn:
    """A data set of a script that ends itself."""
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotReady("no data here"), "no data here"),
        (ValueError("bad\nvalue"), "ValueError: bad\nvalue"),
        (ValueError("\udcff\ud800 bytes"), "ValueError: \\udcff\\ud800 bytes"),
        (Speechless(), "Speechless: (its text cannot be made: ValueError)"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
    ],
)
def test_anything_raised_becomes_words_that_can_be_sent(error: BaseException, words: str) -> None:
    assert words_of(error) == words
    assert msgspec.json.decode(msgspec.json.encode(trace_of(error))).strip()


def test_what_flodl_found_itself_needs_no_traceback() -> None:
    with pytest.raises(NotReady) as alone:
        raise NotReady("no data here")
    assert trace_of(alone.value) == "no data here"
    caused = NotReady("cannot be built")
    with pytest.raises(SystemExit) as left:
        leaves()
    caused.__cause__ = left.value
    assert "in leaves" in trace_of(caused)


def test_megabytes_are_cut() -> None:
    error = ValueError("z" * 5_000_000)
    assert len(words_of(error)) < 2100
    assert len(trace_of(error)) < 20 * 600
    assert len(words_of(ValueError("\udcff" * 5_000))) < 2100


def test_a_data_set_that_calls_exit_is_told_as_the_cause(tmp_path: Path) -> None:
    target = Component(target="tests.engine.test_failure.leaves")
    done, link = life(JOB.replace(dataset=target, trusted_targets=("tests.engine.test_failure",)), tmp_path / "store")
    (failed,) = link.sent
    assert not done
    assert isinstance(failed, RankFailed)
    assert "SystemExit" in failed.message
