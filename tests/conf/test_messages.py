"""A wrong command line ends with words: key, value, what is wrong, what to do. No traceback, nothing left behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from flodl.__main__ import main
from flodl.errors import ConfigError
from flodl.explain import explain

Flodl = Callable[..., str]


@pytest.fixture
def flodl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Flodl:
    """Type a command line in an empty folder; it must be refused with exit code 2. Returns what standard error said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)

    def typed(*arguments: str, code: int = 2) -> str:
        assert main(arguments) == code
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said

    return typed


REFUSALS = {
    "an unknown choice": (
        ["elche=cpu_asink"],
        "elche=cpu_asink: there is no such choice; did you mean cpu_async? elche is one of auto, cpu_async, ",
    ),
    "an unknown group": (["elchee=cpu_async"], "elchee=cpu_async: there is no such key; did you mean elche?"),
    "an unknown key": (["trainer.num_epoch=3"], "did you mean trainer.num_epochs?"),
    "a word of the task, nearly": (["task=compare", "run=last"], "run=last: there is no such key; did you mean runs?"),
    "a word of another task": (["runs=last"], "runs=last: there is no such key; it is a word of task=compare"),
    "a line break in what cannot be read": (["optim.lr=a\nb{"], "optim.lr=a b{: cannot be read"),
    "a key without its group": (["num_epochs=3"], "there is no such key; did you mean trainer.num_epochs?"),
    "an unknown key that is forced in": (
        ["+trainer.num_epoch=3"],
        "trainer.num_epoch: there is no such key; did you mean num_epochs?",
    ),
    "an unknown key without its group, by habit": (["epochs=3"], "did you mean trainer.num_epochs?"),
    "an argument without its component": (["lr=0.1"], "lr=0.1: there is no such key; did you mean optim.lr?"),
    "a key of another block": (["trainer.lr=0.1"], "there is no such key; did you mean optim.lr?"),
    "a key that is like none of its block": (["meta.foo=1"], "meta.foo=1: there is no such key; known here: enabled"),
    "a key in an unknown group": (["modl.hidden=3"], "modl.hidden=3: there is no such key; did you mean model.hidden?"),
    "a key of another guard": (
        ["guard.nudge_factor=0.5"],
        "guard.nudge_factor=0.5: guard=trend has no such key; it belongs to guard=msf",
    ),
    "a key of no guard": (["guard.foo=1"], "guard.foo=1: guard=trend has no such key; its keys are threshold"),
    "a key of a guard that has none": (["guard=none", "guard.foo=1"], "guard=none has no such key; it takes none"),
    "a key of a guard, nearly": (["guard.treshold=1"], "did you mean guard.threshold?"),
    "a misspelt argument of a model": (
        ["model=mlp", "model.hiden=4"],
        "does not mention this key; did you mean model.hidden? if not, '++model.hiden=4' adds it",
    ),
    "another key of an optimizer": (["optim.foreach=true"], "to add it: '++optim.foreach=true'"),
    "a new name in a map": (["cluster.env.NCCL_DEBUG=WARN"], "to add it: '++cluster.env.NCCL_DEBUG=WARN'"),
    "a new name in a host's map": (["cluster.workers.0.env.A=B"], "to add it: '++cluster.workers.0.env.A=B'"),
    "a plus too many": (["+trainer.num_epochs=3"], "+trainer.num_epochs: the key is there already; leave out the +"),
    "a plus before a group": (["+elche=cpu_sync"], "the group has a choice already; leave out the +: elche=cpu_sync"),
    "a key to delete that is not there": (["~trainer.nothing"], "~trainer.nothing: there is no such key to delete"),
    "no equals sign": (["trainer.num_epochs"], "trainer.num_epochs: cannot be read"),
    "no key": (["=3"], "there is no key before the ="),
    "nothing for a group": (["model=null"], "model=null: is no choice of a group; write group=choice"),
    "a number for a group": (["elche=3", "optim=null"], "elche=3: is no choice of a group"),
    "a number beyond the wire": (["trainer.seed=99999999999999999999"], "seed=99999999999999999999: is too large"),
    "bytes that are no text": (["name='\udcff'"], "name=\\udcff: is not text"),
    "an open bracket": (["sim.ms_per_batch=[1,2"], "cannot be read"),
    "a sweep's experiment without -m": (
        ["experiment=ab_outer"],
        "experiment=ab_outer: is a sweep over outer=average,slowmo,diloco; give -m",
    ),
    "several values without -m": (
        ["elche=cpu_async,cpu_sync"],
        "holds several values; to run each of them: -m elche=cpu_async,cpu_sync",
    ),
    "a list over a map": (["++cluster.env=[A]"], "cluster.env=[A]: does not fit what stands there"),
    "an unknown primary config": (["--config-name=mine"], "config=mine: there is no such configuration"),
    "a wrong type": (["trainer.batch_size=big"], "trainer.batch_size=big: must be a whole number >= 1"),
    "a rate that is none": (["optim.lr=abc"], "optim.lr=abc: must be a number >= 0"),
    "a rate below 0 in a dry run": (["optim.lr=-1", "launch.dry_run=true"], "optim.lr=-1: must be a number >= 0"),
    "contradictory knobs": (
        ["elche=cpu_cadence", "elche.min_anchor=20", "elche.max_anchor=5"],
        "elche.min_anchor=20: must not exceed elche.max_anchor=5; lower min_anchor or raise max_anchor",
    ),
    "gradients in cpu_async": (
        ["elche=cpu_async", "elche.average=gradients"],
        "elche.average=gradients: cpu_async trains on while it averages",
    ),
    "a value that is left open": (["trainer.seed=???"], "trainer.seed=???: has no value; give one: trainer.seed=..."),
    "a task without its argument": (["task=rerun"], "spec=???: has no value; give one: spec=..."),
    "NCCL on CPU ranks": (
        ["elche=nccl_cadence", "cluster=rehearsal"],
        "and cluster.workers[0] (localhost) lends cpu:2; use elche=cpu_cadence, or lend GPUs",
    ),
    "an interpolation to nowhere": (["model.depth=${nowhere}"], "model.depth: cannot be resolved"),
    "an interpolation that comes back": (["name=\\${trainer.seed}"], "still holds ${ after resolving"),
    "a target outside": (
        ["step._target_=os.system"],
        "step._target_=os.system: lies in Python's standard library, outside the packages that a config may call",
    ),
    "a target of no project": (["step._target_=nobody.has.This"], "say 'trusted_targets=[nobody.has.This]'"),
    "a nested target outside": (["++step.inner={_target_: subprocess.run}"], "step.inner._target_=subprocess.run"),
    "another machine that cannot reach this one": (
        ["cluster.workers.0.host=node-a"],
        "cluster.controller.host=127.0.0.1: is no address that node-a can reach; name this machine's address on the",
    ),
    "more slices than samples": (
        ["trainer.accumulate=9", "cluster.workers.0.overrides.batch_size=8"],
        "trainer.accumulate=9: a batch of cluster.workers[0].overrides.batch_size=8 samples has not so many slices",
    ),
    "a device that is not there": (["cluster.workers.0.local_devices=[63]", "launch.probe=false"], "local_devices=63"),
    "a rerun with another key": (
        ["task=rerun", "spec=a/spec.json", "trainer.seed=1"],
        "trainer.seed=1: is ignored by task=rerun: the job is the file's; leave it out, or compose a new job",
    ),
    "a rerun of nothing": (["task=rerun", "spec=a/b.json"], "spec=a/b.json: No such file or directory; name the spec"),
    "an unknown task": (["task=probee"], "task=probee: there is no such choice"),
    "trust in a number": (["trusted_targets=5"], "trusted_targets=5: must be one list of names"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_it_is_refused_in_words(case: str, flodl: Flodl) -> None:
    arguments, words = REFUSALS[case]
    assert words in flodl(*arguments)


def test_all_problems_are_told_at_once(flodl: Flodl) -> None:
    said = flodl("trainer.batch_size=0", "elche.gamma=much", "+trainer.epochs=3", "guard.threshold=-1",
                 "optim.lr=-1", "optim.momentum=much")  # fmt: skip
    assert "wrong in 6 places" in said
    for key in ("trainer.batch_size=0", "elche.gamma=much", "trainer.epochs:", "guard.threshold=-1",
                "optim.lr=-1", "optim.momentum=much"):  # fmt: skip
        assert key in said


def test_all_open_values_are_told_at_once(flodl: Flodl) -> None:
    said = flodl("trainer.seed=???", "name=???", "model.depth=${nowhere}", "optim.lr=${oc.env:NOT_SET}")
    assert "wrong in 4 places" in said


def test_a_secret_is_refused_and_shown_nowhere(flodl: Flodl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    said = flodl("name=${oc.env:HF_TOKEN}", "checkpoint.stem=HF_TOKEN", 'model.depth="${oc.env:${checkpoint.stem}}"')
    assert "name=${oc.env:HF_TOKEN}: asks for a secret" in said
    assert "model.depth=${oc.env:HF_TOKEN}: asks for a secret" in said
    assert "cluster.env_pass=[HF_TOKEN]" in said
    assert "hunter2" not in said
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]


def test_a_password_in_an_address_is_refused_and_shown_nowhere(flodl: Flodl, tmp_path: Path) -> None:
    said = flodl("logger=mlflow", "logger.mlflow.uri=postgresql://me:hunter2@db/runs",
                 "name='at https://db/?token=hunter2'", "checkpoint.stem='ssh://me@host:22/a:b'")  # fmt: skip
    assert "wrong in 2 places" in said
    assert "logger.mlflow.uri: is an address that holds a password" in said
    assert "MLFLOW_TRACKING_PASSWORD" in said
    assert "hunter2" not in said
    (tmp_path / "conf" / "logger").mkdir(parents=True)
    (tmp_path / "conf" / "logger" / "mine.yaml").write_text("mlflow: {uri: 'https://me:hunter2@host'}\n")
    assert "logger.mlflow.uri: is an address that holds a password" in flodl("logger=mine")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("group", "text", "key"),
    [
        ("logger", "mlflow: {uri: 'https://me:hunter2@host'}", "logger.mlflow.uri: is an address that holds"),
        ("cluster", "defaults: [local, _self_]\nenv: {HF_TOKEN: hunter2}", "cluster.env.HF_TOKEN: looks like a secret"),
        ("cluster", "defaults: [local, _self_]\nworkers: [{host: localhost, env: {HF_TOKEN: hunter2}}]",
         "cluster.workers[0].env.HF_TOKEN: looks like a secret"),
    ],
    ids=["in an address", "for every host", "for one host"],
)  # fmt: skip
@pytest.mark.parametrize("sweep", [(), ("-m", "trainer.seed=1,2")], ids=["one run", "a sweep"])
def test_a_secret_in_a_file_is_refused_before_anything_is_written(
    group: str, text: str, key: str, sweep: tuple[str, ...], flodl: Flodl, tmp_path: Path
) -> None:
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / group / "mine.yaml").write_text(f"{text}\n")
    said = flodl(*sweep, f"{group}=mine")
    assert said.count(key) == 1, said
    assert "hunter2" not in said
    assert not (tmp_path / "outputs").exists()


def test_a_secret_is_not_resolved_for_show_either(
    flodl: Flodl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    with pytest.raises(SystemExit):
        main(["--cfg", "job", "--resolve", "--no-such-flag"])
    main(["--cfg", "job", "--resolve", "name=${oc.env:HF_TOKEN}"])
    assert "hunter2" not in capsys.readouterr().out


def test_trust_that_a_file_brings_is_refused(flodl: Flodl, tmp_path: Path) -> None:
    own = tmp_path / "conf" / "experiment"
    own.mkdir(parents=True)
    (own / "sly.yaml").write_text("# @package _global_\ntrusted_targets: [os]\nstep:\n  _target_: os.system\n")
    said = flodl("experiment=sly")
    assert "comes from a file, and only the command line may extend trust" in said
    said = flodl("experiment=sly", "trusted_targets=[shutil]")
    assert "os.system: lies in Python's standard library" in said


def test_a_typed_trust_is_enough(flodl: Flodl, capsys: pytest.CaptureFixture[str]) -> None:
    flodl("step._target_=nobody.has.This", "trusted_targets=[nobody]", "launch.dry_run=true", code=0)


def test_a_misspelt_import_path_is_told_by_its_name_and_trust_is_no_way_out(flodl: Flodl, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text("raise SystemExit('imported')\nclass Wide: pass\n")
    said = flodl("model=none", "model._target_=mine.nets.Wyde", "step._target_=mien.nets.Wide")
    assert "model._target_=mine.nets.Wyde: mine/nets.py has no Wyde; did you mean Wide?\n" in said
    assert "step._target_=mien.nets.Wide: there is no module mien here; did you mean mine?\n" in said
    assert "trust" not in said
    flodl("model=none", "model._target_=mine.nets.Wide", "launch.dry_run=true", code=0)


def test_what_has_no_effect_is_a_warning(flodl: Flodl) -> None:
    said = flodl("cluster=rehearsal", "elche=cpu_cadence", "elche.easgd_alpha=0.5", "elche.partition_ratios=[1,1]",
                 "membership.max_restarts=5", "launch.dry_run=true", code=0)  # fmt: skip
    assert "warning: membership.max_restarts=5: is ignored: membership.rejoin is false" in said
    assert "warning: elche.easgd_alpha=0.5: is ignored: only cpu_async uses it, and the mode is cpu_cadence" in said
    assert "warning: elche.partition_ratios=[1.0, 1.0]: is ignored" in said


def test_a_bug_of_ours_shows_its_traceback_and_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flodl.app.resolve", lambda config: 1 / 0)
    assert main(["launch.dry_run=true"]) == 5
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "this is a bug in flodl" in said


def test_problems_are_at_hand_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flodl.app import run

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        run(["trainer.num_epochs=0", "trainer.batch_size=0"])
    assert [(p.key, p.value) for p in caught.value.problems] == [
        ("trainer.num_epochs", "0"),
        ("trainer.batch_size", "0"),
    ]


def test_a_run_folder_that_cannot_be_made_is_told_in_words(flodl: Flodl) -> None:
    said = flodl("hydra.run.dir=/proc/nothing", code=3)
    assert "/proc/nothing: No such file or directory; a run needs a folder to write in" in said


def test_a_working_folder_that_is_gone_is_no_bug(flodl: Flodl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    said = flodl("launch.dry_run=true", code=3)
    assert "No such file or directory" in said
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("swept", ["trainer.seed=range(3,3)", "cluster=glob(nobody*)"])
def test_a_sweep_over_nothing_is_refused(flodl: Flodl, swept: str) -> None:
    assert "no arms" in flodl("-m", swept, "launch.dry_run=true")


def test_a_full_disk_is_told_with_the_folder_and_the_way_out() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    said = str(explain(full, [], ["hydra.run.dir=/mnt/full"]))
    assert said == (
        "/mnt/full: No space left on device; make room there, or name a folder on another disk: hydra.run.dir=... "
        "(in a program save_path)"
    )
    assert str(explain(full, [])).startswith("outputs: No space left")
    full.filename = str(Path.cwd() / "outputs" / "today")
    assert str(explain(full, [])).startswith("outputs/today: No space left")


def test_a_run_that_could_not_begin_says_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    assert main(["cluster.workers.0.local_devices=[63]", "hydra.run.dir=a/run"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "run folder: a/run"
    assert (tmp_path / "a" / "run" / "result.json").exists()
