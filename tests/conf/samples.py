"""For every key of a job: values that it takes and values that it refuses, as typed on the command line.

``None`` as the only illegal value of a key would be a key that refuses nothing: there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import yaml


class Sample(NamedTuple):
    """legal: no default, and fits together with all other legal values. illegal: each is refused."""

    legal: str
    illegal: tuple[str, ...]

    @property
    def value(self) -> object:
        """What the legal text means."""
        return yaml.safe_load(self.legal)


TEXT = ("5", "[a]", "null")
MAYBE_TEXT = ("5", "[a]", "true")
SWITCH = ("5", "maybe", "null")
COUNT = ("0", "-1", "1.5", "many", "true")  # whole, 1 or more
COUNT_FROM_0 = ("-1", "1.5", "many", "true")
AMOUNT = ("0", "-0.5", "many", "true", "nan", "inf")  # above 0

COMPONENT = ("nonsense", "[a]")

SAMPLES: dict[str, Sample] = {
    "name": Sample("mine", TEXT),
    "elche.mode": Sample("cpu_async", ("cpu_asink", "5", "null")),
    "elche.anchor": Sample("12", COUNT),
    "elche.min_anchor": Sample("2", COUNT),
    "elche.max_anchor": Sample("50", COUNT),
    "elche.anchor_rank": Sample("1", COUNT_FROM_0),
    "elche.overhead_target": Sample("0.1", ("0.001", "0.6", "much", "nan")),
    "elche.max_batch_diff": Sample("3", COUNT_FROM_0),
    "elche.relax_up": Sample("true", SWITCH),
    "elche.partition_ratios": Sample("[0.7, 0.3]", ("[0.7, -0.3]", "0.7", "[a]", "[0.5, nan]")),
    "elche.split": Sample("equal", ("fair", "5")),
    "elche.average": Sample("parameters", ("weights", "5")),
    "elche.gamma": Sample("0.5", ("much", "nan", "null")),
    "elche.easgd_alpha": Sample("0.5", ("0", "1.1", "much")),
    "elche.easgd_beta": Sample("p", ("0", "1.1", "q")),
    "elche.center": Sample("consensus", ("middle", "null")),
    "elche.bn_buffers": Sample("mean", ("median", "null")),
    "elche.max_overshoot": Sample("4", COUNT),
    "guard.name": Sample("msf", ("trendy", "null")),
    "guard.threshold": Sample("0.1", AMOUNT),
    "guard.nudge_threshold": Sample("0.02", ("-1", "much", "nan")),
    "guard.nudge_sustain": Sample("4", COUNT),
    "guard.nudge_factor": Sample("0.7", ("0", "1.1", "much")),
    "guard.suppress_threshold": Sample("0.002", ("-1", "much", "nan")),
    "guard.suppress_sustain": Sample("4", COUNT),
    "guard.ema_alpha": Sample("0.8", ("-0.1", "1.0", "much")),
    "meta.enabled": Sample("false", SWITCH),
    "membership.max_failure": Sample("25%", ("0", "0%", "101%", "some", "1.5")),
    "membership.rejoin": Sample("true", SWITCH),
    "membership.max_restarts": Sample("5", COUNT),
    "membership.timeout_scale": Sample("0.1", AMOUNT),
    "outer.name": Sample("average", ("mean", "5")),
    "outer.lr": Sample("0.6", AMOUNT),
    "outer.mu": Sample("0.8", ("-0.1", "1.0", "much", "nan")),
    "outer.reset_inner": Sample("true", SWITCH),
    "cluster.controller.host": Sample("10.0.0.1", TEXT),
    "cluster.controller.bind": Sample("10.0.0.2", MAYBE_TEXT),
    "cluster.controller.port": Sample("4000", ("-1", "65536", "http", "null")),
    "cluster.controller.data_path": Sample("/data", MAYBE_TEXT),
    "cluster.controller.join.min_ranks": Sample("1", COUNT),
    "cluster.controller.join.timeout_seconds": Sample("20.0", AMOUNT),
    "cluster.workers.0.host": Sample("node-a", ("5", "''", "-x")),
    "cluster.workers.0.ssh.target": Sample("node-a.lan", MAYBE_TEXT),
    "cluster.workers.0.ssh.port": Sample("22", ("0", "65536", "ssh")),
    "cluster.workers.0.ssh.user": Sample("me", MAYBE_TEXT),
    "cluster.workers.0.ssh.identity_file": Sample("/k", MAYBE_TEXT),
    "cluster.workers.0.ssh.proxy_jump": Sample("gate", MAYBE_TEXT),
    "cluster.workers.0.ssh.known_hosts": Sample("/h", MAYBE_TEXT),
    "cluster.workers.0.ssh.host_key_policy": Sample("accept_new", ("accept_all", "null")),
    "cluster.workers.0.local_devices": Sample("cpu:2", ("gpu", "cpu:0", "cpu:x", "[0,0]", "[]", "[-1]", "2", "null")),
    "cluster.workers.0.nccl_socket_ifname": Sample("lo", MAYBE_TEXT),
    "cluster.workers.0.path": Sample("/srv/me", MAYBE_TEXT),
    "cluster.workers.0.arch": Sample("sm61", MAYBE_TEXT),
    "cluster.workers.0.python": Sample("/usr/bin/python3", ("python3", "5")),
    "cluster.workers.0.data_path": Sample("/data", MAYBE_TEXT),
    "cluster.workers.0.docker": Sample("trainer", MAYBE_TEXT),
    "cluster.workers.0.overrides.batch_size": Sample("16", COUNT),
    "cluster.workers.0.overrides.micro_batch": Sample("auto", COUNT),
    "cluster.workers.0.overrides.precision": Sample("bfloat16", ("bf16", "16")),
    "cluster.workers.0.overrides.compile": Sample("true", ("maybe", "5")),
    "cluster.workers.0.overrides.num_workers": Sample("0", COUNT_FROM_0),
    "cluster.workers.0.speed": Sample("[1.0, 0.4]", ("0", "1e-9", "1.5", "slow", "[]", "[1.0, nan]")),
    "cluster.workers.0.env": Sample("{A: b}", ("{RANK: 1}", "{1a: b}", "{API_KEY: b}", "{A: [b]}", "A")),
    "cluster.env": Sample("{NCCL_DEBUG: WARN}", ("{FLODL_X: 1}", "{MASTER_PORT: 1}", "{A: 0.5}", "A")),
    "cluster.env_pass": Sample("[WANDB_API_KEY]", ("[WORLD_SIZE]", "['a b']", "A", "[5]")),
    "cluster.deploy.code": Sample("rsync", ("copy", "true")),
    "cluster.deploy.data": Sample("rsync", ("copy", "true")),
    "launch.dry_run": Sample("true", SWITCH),
    "launch.probe": Sample("false", SWITCH),
    "launch.transport": Sample("my.transport.open_streams", ("5", "open_streams", "a b.c", "null")),
    "launch.deploy": Sample("mine.push", ("push", "null", "5", "'a b.c'")),
    "launch.detach": Sample("true", SWITCH),
    "launch.execute": Sample("mine.by_hand", ("here", "null", "5", "'a b.c'")),
    "model": Sample("{_target_: flodl.models.lenet.LeNet, a: [1, {b: 0.5}]}", COMPONENT),
    "dataset": Sample("{_target_: flodl.datasets.synthetic.synthetic}", COMPONENT),
    "step": Sample("{_target_: my.steps.Step, scale: null}", COMPONENT),
    "optim": Sample("{_target_: torch.optim.AdamW, _partial_: true, lr: 0.001}", COMPONENT),
    "scheduler": Sample("{_target_: flodl.decide.schedule.Constant, warmup: 0.1}", COMPONENT),
    "loop": Sample("{_target_: mine.gan, _partial_: true}", COMPONENT),
    "loader.resident": Sample("false", ("maybe", "5", "null")),
    "loader.num_workers": Sample("3", COUNT_FROM_0),
    "loader.prefetch": Sample("4", COUNT),
    "loader.pin_memory": Sample("false", SWITCH),
    "trainer.num_epochs": Sample("3", COUNT),
    "trainer.batch_size": Sample("32", COUNT),
    "trainer.seed": Sample("7", COUNT_FROM_0),
    "trainer.deterministic": Sample("true", SWITCH),
    "trainer.accumulate": Sample("4", COUNT),
    "trainer.micro_batch": Sample("8", ("0", "-1", "1.5", "many", "null")),
    "trainer.precision": Sample("bfloat16", ("bf16", "16", "null")),
    "trainer.compile": Sample("true", ("maybe", "5", "null")),
    "trainer.max_grad_norm": Sample("1.5", AMOUNT),
    "trainer.limit_batches": Sample("20", COUNT),
    "trainer.max_nonfinite_rounds": Sample("2", COUNT),
    "trainer.ema": Sample("5000", COUNT),
    "trainer.reports_per_epoch": Sample("4", COUNT),
    "eval.every_epochs": Sample("2", COUNT),
    "eval.every_minutes": Sample("5.0", AMOUNT),
    "eval.at_end": Sample("false", SWITCH),
    "eval.split": Sample("train", ("test", "5", "null")),
    "eval.limit_batches": Sample("2", COUNT),
    "eval.metrics": Sample("[loss, accuracy]", ("loss", "[5]", "5", "['']")),
    "stop.max_time": Sample("1h30m", ("0", "-1", "0s", "2x", "h", "1.5.2h", "true", "nan")),
    "stop.at": Sample("'07:00'", ("24:00", "7", "seven", "12:61", "true")),
    "stop.max_samples": Sample("1000", COUNT),
    "stop.target.metric": Sample("accuracy", MAYBE_TEXT),
    "stop.target.value": Sample("0.9", ("much", "true", "nan", "inf")),
    "stop.target.mode": Sample("max", ("most", "null")),
    "stop.early.metric": Sample("loss", MAYBE_TEXT),
    "stop.early.patience": Sample("3", COUNT),
    "stop.early.min_delta": Sample("0.001", ("-0.1", "much", "true", "nan")),
    "stop.early.mode": Sample("min", ("least", "null")),
    "stop.when_settled": Sample("true", SWITCH),
    "checkpoint.stem": Sample("best", ("a/b", "''", "../x", "5")),
    "checkpoint.every_epochs": Sample("2", COUNT),
    "checkpoint.every_minutes": Sample("1.5", AMOUNT),
    "checkpoint.keep": Sample("3", COUNT),
    "checkpoint.best.metric": Sample("accuracy", ("5", "''")),
    "checkpoint.best.mode": Sample("min", ("least", "null")),
    "checkpoint.best.keep": Sample("2", ("0", "-1", "1.5", "null")),
    "checkpoint.resume_from": Sample("outputs/a", ("''", "5")),
    "checkpoint.resume": Sample("latest_valid", ("newest", "null")),
    "callbacks.policy": Sample("1", ("-1", "slowest", "1.5")),
    "callbacks.epoch_fn": Sample("{_target_: mine.begin, _partial_: true}", COMPONENT),
    "callbacks.eval_fn": Sample("{_target_: mine.judge, _partial_: true}", COMPONENT),
    "callbacks.checkpoint_fn": Sample("{_target_: mine.keep, _partial_: true}", COMPONENT),
    "sim.ms_per_batch": Sample("[10.0, 25.0]", ("[0]", "10", "[fast]", "[nan]")),
    "sim.averaging_ms": Sample("5.0", AMOUNT),
    "sim.jitter": Sample("0.1", ("-0.1", "1.0", "much", "nan")),
    "sim.num_samples": Sample("1000", COUNT),
    "debug.max_windows": Sample("2", COUNT),
    "debug.eval_everywhere": Sample("true", SWITCH),
    "debug.overfit": Sample("true", SWITCH),
    "debug.inprocess": Sample("true", SWITCH),
    "logger": Sample("{'größe/a b': {_target_: mine.Logger, folder: x}}", COMPONENT),
    "objective": Sample("eval/accuracy", ("5", "''", "null", "[5]", "Eval loss")),
    "trusted_targets": Sample("[my.package]", ("my.package", "[5]", "5")),
}
