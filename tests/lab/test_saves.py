"""FAULTS rows 22 and 27: what the disks of a run do to its bundles, and where these lie."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flodl.record.bundle import BundleStore
from tests.e2e.command import Command, command
from tests.e2e.journals import audit, carried_out, end_of, saves
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, awaited, flodl, lone_ranks
from tests.lab.shell import reason_for_no_lab

DISK = "size=24m,nr_inodes=64"
LIMIT_BYTES = 1_000_000  # less than the weights, more than the journal of a minute
RESUMABLE = 75
ALONE = (
    "cluster.workers=[{host: localhost, local_devices: 'cpu:2'}]",
    "elche=cpu_cadence",
    "model=mlp",
    "model.hidden=[1024,256]",  # 1.3 MB of weights
    "trainer.num_epochs=100000",
    "eval=off",
    "hydra.run.dir=run",
)


@contextmanager
def disk(place: Path) -> Iterator[None]:
    """A small disk of its own at `place`."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def full(place: Path, run: Command) -> Iterator[str]:
    """Not a byte is left on the disk."""
    filler = place.parent / "checkpoints" / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                continue
        except OSError:
            yield "ENOSPC"
    filler.unlink()


@contextmanager
def crowded(place: Path, run: Command) -> Iterator[str]:
    """There is room, but not for another file: no inode is left."""
    made: list[Path] = []
    try:
        while True:  # what the saves beside may free is taken, too
            made.append(place / f"file{len(made)}")
            made[-1].touch()
    except OSError:
        yield "ENOSPC"
    for path in made:
        path.unlink(missing_ok=True)


@contextmanager
def read_only(place: Path, run: Command) -> Iterator[str]:
    """The disk takes no write any more."""
    awaited(lambda: remounted(place, "ro"), 20)  # not while a file is open for writing
    yield "EROFS"
    assert remounted(place, "rw")


@contextmanager
def limited(place: Path, run: Command) -> Iterator[str]:
    """No file of the controller may grow beyond a limit."""
    before = resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
    yield "EFBIG"
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, before)


def remounted(place: Path, how: str) -> bool:
    return not subprocess.run(["mount", "-o", f"remount,{how}", place], capture_output=True).returncode


def refusals(run: Command) -> list[str]:
    """What the terminal has said of saves that a disk refused."""
    return [line for line in run.output.splitlines() if re.search(r"\(E[A-Z]+\): ", line)]


@pytest.mark.row(22)
def test_a_disk_that_refuses_costs_neither_a_bundle_nor_a_step(tmp_path: Path) -> None:
    """Each refusal is told with its path and name, another rank tries, training goes on, and then saves go on."""
    if reason := reason_for_no_lab():
        pytest.skip(reason)
    place = tmp_path / "run" / "checkpoints"
    store = BundleStore(place)
    with disk(place), command(tmp_path, *ALONE) as run:
        run.trains()
        for fault in (limited, full, crowded, read_only):
            run.until(lambda: store.newest() is not None)
            before = len(refusals(run))
            with fault(place, run) as name:
                run.until(lambda name=name, n=before: any(f"({name}): " in line for line in refusals(run)[n:]))
                good = store.load().bundle  # whole, to the last byte
                assert all(str(place) in line for line in refusals(run))
                epochs = run.output.count("epoch ")
                run.until(lambda epochs=epochs: run.output.count("epoch ") > epochs + 2)
                assert store.load().bundle == good
            run.until(lambda good=good: store.newest() != good)
        run.signal(signal.SIGTERM)
        assert run.end(60) == RESUMABLE, run.output
        assert store.load().bundle.meta.reason == "interrupted"
        assert not [path for path in place.iterdir() if path.suffix == ".tmp"]
        savers = [order.rank for _, order in saves(tmp_path / "run")]
        assert any(one != other for one, other in itertools.pairwise(savers))  # the next one tried
        assert audit(tmp_path / "run") == (0, 0)


def bundle_files(lab: Lab, host: str) -> set[str]:
    """What lies there of any bundle."""
    return set(lab[host].exec(["find", "/srv", "/root", "/tmp", "-name", "*.fdl"]).stdout.splitlines())


@pytest.mark.row(13, 27)
def test_a_bundle_of_another_hosts_rank_lies_whole_with_the_controller_and_goes_on_after_a_kill(
    lab: Lab, desk: Path
) -> None:
    cluster = lone_ranks(lab)
    cluster["workers"] = cluster["workers"][:2]
    lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)
    store = BundleStore(desk / "run" / "checkpoints")
    before = [bundle_files(lab, host) for host in ("node-a", "node-b")]  # this checkout may have trained before
    with flodl(desk, *ENDLESS, "callbacks.policy=1", "checkpoint.every_epochs=2") as run:
        run.trains()
        run.until(lambda: len(store.bundles()) == 2)
        os.kill(run.process.pid, signal.SIGKILL)
        run.end()
        awaited(lambda: lab.processes() == {}, 5)
    assert {order.rank for _, order in saves(desk / "run")} == {1}  # on the other host
    assert [bundle_files(lab, host) for host in ("node-a", "node-b")] == before  # nothing of it: disks are private
    kept = store.load().bundle
    epochs = f"trainer.num_epochs={kept.meta.epoch + 3}"
    output = carried_out(desk, "task=resume", "run=run", epochs, "hydra.run.dir=second")
    assert f"going on from {kept.meta_path}" in output.replace("\n", "")
    assert audit(desk / "second") == (0, 0)
    assert end_of(desk / "second").totals.epochs_done == kept.meta.epoch + 3
