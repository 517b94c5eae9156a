"""The rig stands in one line that a person understands."""

from __future__ import annotations

import msgspec
import pytest

from flodl.decide.roster import Place
from flodl.report.rig import hosts_of, rig_line
from flodl.spec.cluster import ClusterSpec, HostOverrides, HostSpec
from flodl.spec.component import Component
from flodl.spec.elche import ElCheConfig
from flodl.spec.job import JobSpec, TrainerConfig
from flodl.spec.outer import DiLoCoConfig

THING = Component(target="torch.nn.Linear")


def job(**trainer: int) -> JobSpec:
    return JobSpec(
        elche=ElCheConfig(mode="cpu_async"),
        cluster=ClusterSpec(workers=(HostSpec(host="localhost"),)),
        model=THING,
        dataset=THING,
        step=THING,
        optim=THING,
        scheduler=THING,
        trainer=TrainerConfig(**trainer),  # pyright: ignore[reportArgumentType]
    )


def place(rank: int, host: str, device: str = "cpu", speed: float = 1.0, batch_size: int = 64) -> Place:
    return Place(rank=rank, host=host, device=device, speed=speed, batch_size=batch_size)


REHEARSAL = (place(0, "localhost"), place(1, "localhost", speed=0.4))
TWO_HOSTS = (place(0, "a", "cuda:0"), place(1, "a", "cuda:1"), *(place(r, "b", batch_size=16) for r in (2, 3, 4)))


def test_a_rehearsal_rig() -> None:
    assert rig_line(job(), REHEARSAL, {"localhost": 1}) == (
        "2 ranks on localhost (cpu, cpu at 0.4) · cpu_async · averages parameters · batch 64 · 10 epochs"
        " · float32 · 1 thread a rank"
    )


def test_two_hosts_with_batch_sizes_of_their_own() -> None:
    line = rig_line(job(num_epochs=1, limit_batches=5), TWO_HOSTS, {"a": 4, "b": 2})
    assert line == (
        "5 ranks on a (cuda:0, cuda:1), b (3 x cpu) · cpu_async · averages parameters · batch 64/64/16/16/16"
        " · 1 epoch of 5 batches · precision by card/float32 · 2 to 4 threads a rank"
    )


def test_one_device_averages_nothing() -> None:
    line = rig_line(job(), REHEARSAL[:1])
    assert line == "1 rank on localhost (cpu) · solo, nothing to average · batch 64 · 10 epochs · float32"


def test_a_loop_that_lives_in_the_program_is_named_as_it_is_written() -> None:
    held = Component(target="flodl.engine.held.given", args={"key": "loop", "words": "play (game.py:12)"})
    assert "the loop play (game.py:12)" in rig_line(msgspec.structs.replace(job(), loop=held), REHEARSAL)


def test_what_a_host_computes_in_is_told() -> None:
    overrides = HostOverrides(precision="bfloat16", compile=True)
    workers = (HostSpec(host="a"), HostSpec(host="b", overrides=overrides))
    line = rig_line(job().replace(cluster=ClusterSpec(workers=workers)), TWO_HOSTS)
    assert line.endswith(" · precision by card/bfloat16 · partly compiled")


@pytest.mark.parametrize(("roster", "hosts"), [(REHEARSAL, ("localhost",)), (TWO_HOSTS, ("a", "b")), ((), ())])
def test_hosts_are_told_once_in_rank_order(roster: tuple[Place, ...], hosts: tuple[str, ...]) -> None:
    assert hosts_of(roster) == hosts


def test_an_outer_optimizer_is_named_and_on_one_device_does_nothing() -> None:
    moved = job().replace(outer=DiLoCoConfig())
    assert " · averages parameters, then diloco · " in rig_line(moved, REHEARSAL)
    assert " · solo, nothing to average (outer=diloco does nothing here) · " in rig_line(moved, REHEARSAL[:1])
