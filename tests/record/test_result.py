"""The result tells the whole run in one file, also of a run that never began."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flodl.errors import ConfigError, FlodlError, Interrupted, NotReady
from flodl.record.result import failed_result, read_result, result, write_result
from tests.record.figures import end, run, run_result

CONTRACT = [
    "status",
    "reason",
    "exit_code",
    "mode",
    "average",
    "world_size",
    "hosts",
    "epochs_done",
    "samples_done",
    "wall_seconds",
    "startup_seconds",
    "samples_per_second",
    "ideal_samples_per_second",
    "utilisation",
    "rounds",
    "anchor",
    "phase",
    "averaging_seconds_exposed",
    "divergence_last",
    "train_loss",
    "eval",
    "dead_ranks",
    "checkpoints",
    "per_rank",
    "versions",
]
PER_RANK = [
    "rank",
    "host",
    "device",
    "batches",
    "samples",
    "compute_seconds",
    "data_wait_seconds",
    "averaging_seconds",
    "idle_seconds",
    "peak_memory_bytes",
]


def test_every_field_of_the_contract_is_in_the_file(runs: Path) -> None:
    write_result(runs / "result", run_result())
    found = msgspec.json.decode((runs / "result").read_bytes())
    assert set(CONTRACT) <= set(found)
    assert found["schema"] == 1
    assert [list(rank) for rank in found["per_rank"]] == [PER_RANK, PER_RANK]


def test_what_the_coordinator_said_is_what_stands_there() -> None:
    told = result(end(status="degraded", reason="rank 1 died"), run())
    assert (told.status, told.reason, told.exit_code) == ("degraded", "rank 1 died", 0)
    assert told.utilisation == pytest.approx(704 / 733)
    assert told.eval == {"accuracy": 0.9694, "loss": 0.1}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConfigError("no such model"), "failed", 2),
        (NotReady("node-a: no interpreter"), "failed", 3),
        (Interrupted("signal"), "interrupted", 130),
        (ValueError("a bug of ours"), "failed", 5),
    ],
)
def test_a_run_that_never_began_has_a_result_too(error: Exception, status: str, code: int, runs: Path) -> None:
    told = failed_result(error, run())
    assert (told.status, told.exit_code, told.samples_done, told.per_rank) == (status, code, 0, ())
    assert str(error) in told.reason
    write_result(runs / "result", told)
    assert read_result(runs / "result") == told


def test_a_run_that_an_error_ended_has_done_what_it_had_done_until_then() -> None:
    told = failed_result(Interrupted("second signal"), run(), end().totals)
    assert (told.status, told.reason, told.exit_code) == ("interrupted", "second signal", 130)
    whole = run_result()
    assert (told.epochs_done, told.samples_done, told.rounds) == (whole.epochs_done, whole.samples_done, whole.rounds)
    assert (told.per_rank, told.eval) == (whole.per_rank, whole.eval)


def test_a_damaged_or_foreign_result_is_refused_in_words(runs: Path) -> None:
    (runs / "result").write_bytes(b'{"status": 1}')
    with pytest.raises(FlodlError, match="result"):
        read_result(runs / "result")
    write_result(runs / "result", msgspec.structs.replace(run_result(), schema=9))
    with pytest.raises(FlodlError, match="schema 9"):
        read_result(runs / "result")
