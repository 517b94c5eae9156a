"""A device that becomes slower half-way: `python -m tests.bench.speed_change`.

Two ranks of equal pace; from its 200th step on the second one takes 2.5 times as long. Printed is, for every window
around the change, how much of both ranks' time was compute, and whether it is above 0.9 from the fourth window after
the change on: the median of several windows, since a single one of these machines may be anything.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from torch import Tensor, nn

from flodl.steps.classification import Classification
from tests.bench.balance import BATCH, run_in

STEP_SECONDS = 0.025
CHANGE = 200
LIMIT = 0.9
RANKS = (("localhost", 1.0), ("127.0.0.1", 2.5))


class Changing(Classification):
    """A step that takes BENCH_LATER times as long from its `CHANGE`th call on."""

    calls = 0

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        began = time.perf_counter()
        loss = super().__call__(model, batch)
        self.calls += 1
        times = float(os.environ["BENCH_LATER"]) if self.calls > CHANGE else 1.0
        time.sleep(max(0.0, began + STEP_SECONDS * times - time.perf_counter()))
        return loss


def main() -> None:
    for mode in ("cpu_cadence", "cpu_async"):
        with tempfile.TemporaryDirectory() as folder:
            hosts = ", ".join(
                f"{{host: {host}, local_devices: 'cpu:1', nccl_socket_ifname: lo, env: {{BENCH_LATER: '{later}'}}}}"
                for host, later in RANKS
            )
            change = ("step._target_=tests.bench.speed_change.Changing", f"cluster.workers=[{hosts}]")
            run_in(Path(folder), mode, (1.0,), 400 * BATCH, 2, *change)
            lines = Path(folder, "run", "journal.jsonl").read_text().splitlines()
        _tell(mode, [event for line in lines[1:] if (event := json.loads(line).get("event"))])


def _tell(mode: str, events: list[dict[str, Any]]) -> None:
    windows = [e for e in events if e["type"] == "WindowDone"]
    ended = {e["round"]: e["at"] for e in events if e["type"] == "AveragingDone"}
    ran, changed, parts = 0, 0, {}
    for number in sorted(ended)[1:]:
        compute = sum(e["compute_ms"] for e in windows if e["round"] == number) / 1000
        parts[number] = compute / (len(RANKS) * (ended[number] - ended[number - 1]))
        ran += sum(e["batches"] for e in windows if e["round"] == number and e["rank"] == 1)
        changed = number if not changed and ran > CHANGE else changed
    after = [part for number, part in parts.items() if changed + 3 <= number < max(parts)]
    shown = "  ".join(f"{n - changed:+d}: {parts[n]:.2f}" for n in parts if -2 <= n - changed <= 8)
    print(f"{mode}: windows around the change {shown}")
    verdict = "above" if median(after) > LIMIT else "NOT above"
    print(f"{mode}: median from the fourth window on {median(after):.3f}, {verdict} {LIMIT}; lowest {min(after):.3f}"
          f" of {len(after)} windows")  # fmt: skip


if __name__ == "__main__":
    main()
