"""Short golden journals, one per mode and one per kind of death: what is ordered, when, and what ranks hold.

``python -m tests.scenarios.test_golden`` writes them anew; read the difference before committing it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flodl.sim import Costs, Fault, simulate
from flodl.spec.job import TrainerConfig
from tests.scenarios.journal import lines
from tests.scenarios.rigs import job_of, places_of

JOURNALS = Path(__file__).parent / "journals"
COSTS = Costs(ms_per_batch=(10.0, 25.0), num_samples=240, averaging_ms=2.0)

SCENARIOS: dict[str, tuple[dict[str, Any], int, list[Fault]]] = {
    "cpu_cadence": ({"mode": "cpu_cadence", "elche": {"anchor": 4}}, 2, []),
    "cpu_async": ({"mode": "cpu_async", "elche": {"anchor": 4}}, 2, []),
    "cpu_sync": ({"mode": "cpu_sync"}, 2, []),
    "cpu_sync_proportional": ({"mode": "cpu_sync", "elche": {"split": "proportional"}}, 2, []),
    "solo": ({"mode": "cpu_cadence"}, 1, []),
    "death_in_a_window": (
        {"mode": "cpu_cadence", "elche": {"anchor": 4}},
        2,
        [Fault(kind="death", rank=1, on="RunWindow", nth=3, after_ms=30.0)],
    ),
    "death_in_an_averaging": (
        {"mode": "cpu_async", "elche": {"anchor": 4}},
        2,
        [Fault(kind="death", rank=0, on="Average", nth=1, after_ms=1.0, notice_ms=20.0)],
    ),
    "death_in_a_grant": (
        {"mode": "cpu_sync"},
        2,
        [Fault(kind="death", rank=1, on="RunWindow", nth=4, after_ms=60.0, notice_ms=20.0)],
    ),
    "stop_in_a_window": (
        {"mode": "cpu_cadence", "elche": {"anchor": 4}},
        2,
        [Fault(kind="stop", on="RunWindow", nth=4, after_ms=30.0)],
    ),
}


def journal_of(name: str) -> str:
    """The journal of a scenario, as text."""
    job, num_ranks, faults = SCENARIOS[name]
    epochs = TrainerConfig(num_epochs=1 if name.startswith("death") else 2, batch_size=10)
    run = simulate(job_of(trainer=epochs, **job), places_of([10] * num_ranks), COSTS, faults)
    return "\n".join(lines(run.journal)) + "\n"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_journal_is_the_golden_one(name: str) -> None:
    assert journal_of(name).splitlines() == (JOURNALS / f"{name}.txt").read_text().splitlines()


if __name__ == "__main__":
    JOURNALS.mkdir(exist_ok=True)
    for scenario in SCENARIOS:
        (JOURNALS / f"{scenario}.txt").write_text(journal_of(scenario))
