"""Starting with fewer hosts than were named, where the job allows that; and with all or nothing where it does not."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.command import command

SHORT = ("elche=cpu_cadence", "model=mlp", "trainer.num_epochs=1", "eval=off", "hydra.run.dir=run")


def hosts(*broken: str) -> str:
    """Three names of this machine; those of `broken` have no interpreter."""
    return ", ".join(
        f"{{host: {name}, local_devices: 'cpu:1', nccl_socket_ifname: lo"
        + (", python: /no/such/python}" if name in broken else "}")
        for name in ("localhost", "127.0.0.1", "127.0.0.2")
    )


def test_every_host_that_is_not_ready_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with command(tmp_path, *SHORT, f"cluster.workers=[{hosts('localhost', '127.0.0.2')}]") as run:
        assert run.end(120) == 3, run.output
        assert run.output.count("/no/such/python does not start") == 2
        assert run.result["status"] == "failed"
        assert run.result["rounds"] == 0
        assert "127.0.0.2" in run.result["reason"]


def test_a_run_may_begin_without_a_host_and_says_so(tmp_path: Path) -> None:
    allowed = "cluster.controller.join.min_ranks=2"
    with command(tmp_path, *SHORT, f"cluster.workers=[{hosts('127.0.0.1')}]", allowed) as run:
        assert run.end(90) == 0, run.output
        assert "starting without 127.0.0.1: controller.join.min_ranks allows it" in run.output
        assert "/no/such/python does not start" in run.output
        assert run.result["hosts"] == ["localhost", "127.0.0.2"]
        assert run.result["world_size"] == 2
        assert run.result["status"] == "done"
        assert "starting without 127.0.0.1" in (tmp_path / "run" / "controller.log").read_text()


def test_fewer_ranks_than_allowed_are_too_few(tmp_path: Path) -> None:
    allowed = "cluster.controller.join.min_ranks=2"
    with command(tmp_path, *SHORT, f"cluster.workers=[{hosts('127.0.0.1', '127.0.0.2')}]", allowed) as run:
        assert run.end(120) == 3, run.output
        assert "too few ranks are ready: 1, and controller.join.min_ranks is 2" in run.output


def test_a_rank_that_is_late_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\nfrom flodl.models.mlp import MLP\n\n\nclass Slow(MLP):\n"
        "    def __init__(self, **given):\n        super().__init__(**given)\n"
        "        if os.environ['IS_SLOW'] == 'yes':\n            time.sleep(600)\n"
    )
    workers = ", ".join(
        f"{{host: {name}, local_devices: 'cpu:1', nccl_socket_ifname: lo, env: {{IS_SLOW: '{slow}'}}}}"
        for name, slow in (("localhost", "no"), ("127.0.0.1", "yes"), ("127.0.0.2", "no"))
    )
    join = "cluster.controller.join={min_ranks: 2, timeout_seconds: 25}"
    with command(tmp_path, *SHORT, f"cluster.workers=[{workers}]", "model._target_=slow.Slow", join) as run:
        assert run.end(120) == 0, run.output
        assert "starting without rank 1 (cpu of 127.0.0.1)" in run.output
        assert "not ready within cluster.controller.join.timeout_seconds=25" in run.output
        assert run.result["status"] == "degraded"
        assert run.result["dead_ranks"] == [1]
        by_rank = {rank["rank"]: rank["samples"] for rank in run.result["per_rank"]}
        assert by_rank.get(1, 0) == 0
        assert sum(by_rank.values()) == run.result["samples_done"]


def test_hosts_dial_the_address_that_they_are_told_where_another_one_is_listened_on(tmp_path: Path) -> None:
    told = ("cluster.controller.host=localhost", "cluster.controller.bind=127.0.0.1")
    with command(tmp_path, *SHORT, "cluster=rehearsal", *told) as run:
        assert run.end(120) == 0, run.output
