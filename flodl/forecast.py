"""What virtual time says of a job, as a table for people: task=simulate."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from flodl.decide.messages import End
from flodl.decide.roster import Place
from flodl.decide.totals import EpochMetrics
from flodl.report.rig import rig_line
from flodl.sim import Costs, costs_of
from flodl.spec.job import JobSpec

__all__ = ["epoch_table", "print_forecast"]


def print_forecast(job: JobSpec, places: Sequence[Place], end: End, epochs: Sequence[EpochMetrics]) -> None:
    """The rig, one row per epoch, and what became of the run, on standard output."""
    console = Console(highlight=False, markup=False)
    console.print(rig_line(job, places))
    console.print(_assumed(costs_of(job, places)), soft_wrap=not console.is_terminal)
    console.print(epoch_table(places, epochs))
    totals = end.totals
    console.print(
        f"{end.status}: {totals.samples_done} samples in {totals.wall_seconds:.1f} virtual seconds, "
        f"{totals.rounds} rounds, {totals.samples_per_second:.0f} samples/s of {totals.ideal_samples_per_second:.0f} "
        f"possible (utilisation {totals.utilisation:.2f}), anchor {totals.anchor} ({totals.phase})"
    )


def epoch_table(places: Sequence[Place], epochs: Sequence[EpochMetrics]) -> Table:
    """One row per epoch, counted from 1; shares are each rank's part of the epoch's batches."""
    table = Table(title="virtual time: no process, no data", title_justify="left")
    for name in ("epoch", "seconds", "samples/s", "rounds", "anchor", "phase", "divergence", "shares"):
        table.add_column(name, no_wrap=name != "shares")
    for epoch in epochs:
        shares = {figures.rank: figures.batch_share for figures in epoch.ranks}
        table.add_row(
            str(epoch.epoch + 1),
            f"{epoch.wall_seconds:.1f}",
            f"{epoch.samples_per_second:.0f}",
            str(epoch.rounds),
            str(epoch.anchor),
            epoch.phase,
            f"{epoch.divergence:.3f}",
            " ".join(f"{shares.get(place.rank, 0.0):.0%}" for place in places),
        )
    return table


def _assumed(costs: Costs) -> str:
    """What nobody has measured, with the keys that say otherwise."""
    paces = costs.ms_per_batch if len(set(costs.ms_per_batch)) > 1 else costs.ms_per_batch[:1]
    told = "/".join(f"{ms:.4g}" if ms < 1000 else f"{ms:,.0f}" for ms in paces)
    return (
        f"assumed: {costs.num_samples:,} samples (sim.num_samples), {told} ms per batch (sim.ms_per_batch), "
        f"{costs.averaging_ms:g} ms per averaging (sim.averaging_ms)"
    )
