"""What guards and meta-controller do on real processes: `python -m tests.bench.guards [absurd drift anchor500 meta]`.

Two CPU ranks, the second at 0.4 (cluster=rehearsal), a perceptron on synthetic data. Each case prints what was objected
to the anchor, as the journal has it, whether the run's page shows it, and the final losses: the consensus's, on the
evaluation part, median of the seeds.

absurd: a learning rate at which nothing is learnt, default anchor: MsfGuard nudges. drift: a rising learning rate that
is just bearable, overhead_target 0.01: every guard against none. anchor500: 20,000 batches an epoch, anchor 500:
TrendGuard suppresses growth, against none. meta: a step schedule and a cosine. `--at-once 2` runs two at a time;
`--set` gives all an override: with a low learning rate nothing drifts, with a high one nothing is learnt.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

from flodl.decide.messages import RunWindow
from flodl.decide.verdict import objections
from flodl.record.journal import read_journal
from tests.engine.live import ROOT, found_in

JOB = ["cluster=rehearsal", "elche=cpu_cadence", "model=mlp", "dataset=synthetic", "dataset.num_samples=20000",
       "trainer.batch_size=8", "trainer.num_epochs=2", "eval.every_epochs=null", "checkpoint.every_epochs=null",
       "launch.probe=false"]  # fmt: skip
ABSURD = ["scheduler=constant", "optim.lr=0.4", "scheduler.warmup=0.1", "meta=off"]
DRIFT = ["scheduler=constant", "optim.lr=0.04", "scheduler.warmup=0.9", "elche.overhead_target=0.01"]
ANCHOR_500 = ["dataset.num_samples=80000", "trainer.batch_size=4", "trainer.num_epochs=1", "model.hidden=[64]",
              "scheduler=constant", "elche.anchor=500", "optim.lr=0.03", "scheduler.warmup=0.9",
              "elche.overhead_target=0.01"]  # fmt: skip
META = ["optim.lr=0.01", "guard=none"]


class Ran(NamedTuple):
    """loss: of the last consensus, on the evaluation part. highest: of the anchor. said: what was objected to it.
    shown: that stands in the run's page, too."""

    loss: float
    highest: int
    anchor: int
    said: list[str]
    shown: bool

    def count(self, word: str) -> int:
        return sum(word in text for text in self.said)


def run(*job: str) -> Ran:
    """One run, in a folder of its own. Ends this program where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "flodl", *JOB, *job, "hydra.run.dir=run"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": found_in(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        made = Path(folder) / "run"
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        result = json.loads((made / "result.json").read_text())
        windows = {
            command.rounds[0].number: command
            for _, commands in read_journal(made / "journal.jsonl")[1]
            for command in commands
            if isinstance(command, RunWindow)
        }
        said = [text for window in windows.values() for text in objections(window.reason)]
        page = html.unescape((made / "report.html").read_text())
        shown = all(text in page for text in said)
        highest = max(window.anchor for window in windows.values())
        return Ran(result["eval"]["loss"], highest, result["anchor"], said, shown)


def tell(name: str, runs: list[Ran]) -> None:
    """One line per contender, and what was objected in its first run."""
    counts = Counter[str]()
    for ran in runs:
        counts += Counter({word: ran.count(word) for word in ("SuppressGrowth:", "NudgeDown:", "Nudge:", "suppressed")})
    told = ", ".join(f"{word.rstrip(':')} {number}" for word, number in sorted(counts.items())) or "no objection"
    losses = ", ".join(f"{ran.loss:.4g}" for ran in runs)
    print(f"{name:<22} final loss {median(ran.loss for ran in runs):.4g} (of {losses}); highest anchor "
          f"{median(ran.highest for ran in runs):g}, last {median(ran.anchor for ran in runs):g}; {told}; "
          f"{'all' if all(ran.shown for ran in runs) else 'NOT all'} in the page", flush=True)  # fmt: skip
    for text in runs[0].said[:4]:
        print(f"{'':<22}   {text}", flush=True)


def against_none(case: str, guards: list[str], seeds: int, job: list[str], pool: Executor) -> None:
    """Guards beside none, same seeds; whether each one's median loss is lower."""
    losses: dict[str, float] = {}
    going = {
        guard: [pool.submit(run, f"guard={guard}", f"trainer.seed={seed}", *job) for seed in range(seeds)]
        for guard in ["none", *guards]
    }
    for guard, runs in ((guard, [one.result() for one in seeded]) for guard, seeded in going.items()):
        tell(f"{case}, guard={guard}", runs)
        losses[guard] = median(ran.loss for ran in runs)
    for guard in guards:
        print(f"{case}: {guard} ends {'below' if losses[guard] < losses['none'] else 'NOT below'} none", flush=True)


def meta(more: list[str]) -> None:
    """A drop of the learning rate to a tenth, and the same learning rate going to 0 along a cosine."""
    for name, job in {
        "step": ["scheduler=step"],
        "cosine": ["scheduler=cosine"],
    }.items():
        ran = run(*META, *job, *more)
        tell(f"meta, {name}", [ran])
        fell = ran.count("learning rate fell")
        print(f"meta: {fell} nudges for the learning rate on a {name} schedule", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cases = ("absurd", "drift", "anchor500", "meta")
    parser.add_argument("cases", nargs="*", default=cases, help=f"of {', '.join(cases)}")
    parser.add_argument("--seeds", type=int, default=3, help="of drift and anchor500")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an override for all of them")
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time")
    args = parser.parse_args()
    if "absurd" in args.cases:
        tell("absurd, guard=msf", [run("guard=msf", *ABSURD, *args.set)])
    with ThreadPoolExecutor(args.at_once) as pool:
        if "drift" in args.cases:
            against_none("drift", ["trend", "msf"], args.seeds, [*DRIFT, *args.set], pool)
        if "anchor500" in args.cases:
            against_none("anchor500", ["trend"], args.seeds, [*ANCHOR_500, *args.set], pool)
    if "meta" in args.cases:
        meta(args.set)


if __name__ == "__main__":
    main()
