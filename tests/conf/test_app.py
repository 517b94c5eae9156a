"""The door itself: from any folder, and without leaving traces it was not asked for."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flodl import hooks
from flodl.__main__ import main
from flodl.errors import Interrupted
from flodl.record.folder import RunFolder
from flodl.spec.codec import canonical_json, sha256
from flodl.spec.job import JobSpec
from tests.conf.composing import job, shipped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder whose name hurts."""
    folder = tmp_path / "me & my 'project' $(touch x)"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FLODL_CLUSTER", raising=False)
    return folder


def flodl(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-m", "flodl", *arguments], cwd=cwd, capture_output=True, text=True,
                          timeout=120, check=False, env=os.environ | {"PYTHONPATH": paths} | env)  # fmt: skip


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def spec_of(job_: JobSpec, folder: Path) -> Path:
    RunFolder.adopt(folder).write_spec(canonical_json(job_), sha256(job_))
    return folder / "spec.json"


def test_help_is_ours_and_lists_the_groups(here: Path) -> None:
    done = flodl("--help", cwd=here)
    assert done.returncode == 0
    assert "launch.dry_run=true" in done.stdout
    assert "cluster: local, rehearsal, rehearsal4, twohost" in done.stdout
    assert done.stderr == ""


def test_the_configuration_can_be_shown(here: Path) -> None:
    done = flodl("--cfg", "job", "--resolve", "elche=cpu_async", cwd=here)
    assert done.returncode == 0
    assert "  mode: cpu_async\n" in done.stdout
    assert "${" not in done.stdout
    assert files(here) == []


def test_it_can_be_told_where_a_value_comes_from(here: Path) -> None:
    done = flodl("--info", "defaults", "experiment=quickstart", cwd=here)
    assert done.returncode == 0
    assert "cluster/rehearsal" in done.stdout


def test_the_shell_completes_choices(here: Path) -> None:
    line = "flodl elche=cpu_"
    done = flodl("-sc", "query=bash", cwd=here, COMP_LINE=line, COMP_POINT=str(len(line)))
    assert done.stdout.split() == ["elche=cpu_async", "elche=cpu_cadence", "elche=cpu_sync"]
    assert "complete -o nospace" in flodl("-sc", "install=bash", cwd=here).stdout


def test_a_dry_run_prints_the_plan_and_touches_nothing(here: Path) -> None:
    done = flodl("cluster=rehearsal", "elche=cpu_async", "launch.dry_run=true", "cluster.env_pass=[MY_API_KEY]",
                 "++cluster.env={NCCL_DEBUG: WARN}", cwd=here, MY_API_KEY="hunter2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in ("rank 0      localhost cpu, batches of 64", "rank 1      localhost cpu, batches of 64, at 0.4",
                  "cpu_async: parameters over gloo", "-m flodl.engine.agent", "CUDA_VISIBLE_DEVICES",
                  "NCCL_DEBUG", "MY_API_KEY"):  # fmt: skip
        assert words in done.stdout
    assert "WARN" not in done.stdout, "names of variables only"
    assert "hunter2" not in done.stdout
    assert files(here) == []


def test_a_dry_run_needs_no_torch(here: Path) -> None:
    code = ("import sys; from flodl.__main__ import main; assert main(['launch.dry_run=true']) == 0; "
            "assert 'torch' not in sys.modules and 'zmq' not in sys.modules")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("module", "package"), [("hydra", "hydra-core"), ("msgspec", "msgspec"), ("yaml", "pyyaml")])
def test_an_interpreter_without_what_flodl_needs_is_told_in_a_sentence(here: Path, module: str, package: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from flodl.__main__ import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=120,
                          check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith(f"flodl: {sys.executable} has no {package}, which flodl needs; use ")
    assert done.stderr.count("\n") == 1
    assert "/.venv/bin/python (`make train` makes it)" in done.stderr
    assert f"-m pip install -e {shlex.quote(str(ROOT))}" in done.stderr


def test_two_hosts_are_planned_over_ssh(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster=twohost", "launch.dry_run=true", "cluster.workers.1.ssh.user=ann"]) == 0
    plan = capsys.readouterr().out
    assert "over ssh -l ann -i '~/.ssh/id_ed25519' -- 192.168.122.61, in /home/me/project" in plan
    assert "/srv/me/project/envs/sm120/bin/python -P -m flodl.engine.agent" in plan
    assert "local_devices=all is counted there" in plan


def test_one_device_is_planned_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster.workers.0.local_devices=cpu:1", "launch.dry_run=true"]) == 0
    assert "one device trains alone, the mode is ignored" in capsys.readouterr().out


def test_virtual_time_prints_a_table_and_leaves_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=simulate", "cluster=rehearsal4", "trainer.num_epochs=2", "sim.num_samples=5000"]) == 0
    out = capsys.readouterr().out
    assert "virtual time" in out
    assert "assumed: 5,000 samples (sim.num_samples), 10/25/25/47.62 ms per batch (sim.ms_per_batch), 2 ms" in out
    assert re.findall(r"^│ (\d+)", out, re.MULTILINE) == ["1", "2"], "people count from 1"
    assert "utilisation" in out
    assert files(here) == []


def test_virtual_time_takes_hosts_that_nobody_reached(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task=simulate", "cluster=twohost", "trainer.num_epochs=1", "sim.num_samples=2000"]) == 0
    shown = capsys.readouterr()
    assert "pascal (cuda:0, cuda:1)" in shown.out
    assert "blackwell: nobody is asked how many GPUs it has; taken as one" in shown.err


def test_a_users_own_choices_are_found(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = here / "conf" / "cluster"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("defaults: [local, _self_]\nworkers: [{host: localhost, local_devices: cpu:3}]\n")
    (here / "conf" / "config.yaml").write_text("nothing: of ours\n")
    assert main(["cluster=mine", "launch.dry_run=true"]) == 0
    assert "rank 2      localhost cpu" in capsys.readouterr().out


def test_a_users_choice_that_is_never_read_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = here / "conf" / "cluster"
    own.mkdir(parents=True)
    (own / "local.yaml").write_text("workers: []\n")
    assert main(["launch.dry_run=true"]) == 0
    assert "conf/cluster/local.yaml of this folder is not used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "ranks"), [([], 4), (["experiment=quickstart"], 2), (["cluster.workers.0.speed=1.0"], 4)]
)
def test_the_environment_names_the_default_cluster(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], ranks: int
) -> None:
    monkeypatch.setenv("FLODL_CLUSTER", "rehearsal4")
    assert main([*arguments, "launch.dry_run=true"]) == 0
    assert capsys.readouterr().out.count("\nrank ") == ranks


def test_a_default_cluster_that_does_not_exist_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLODL_CLUSTER", "nowhere")
    assert main([]) == 2
    assert "cluster=nowhere: there is no such choice" in capsys.readouterr().err


def test_a_job_is_planned_again_from_its_file_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shipped():
        wanted = job(["cluster=rehearsal4", "elche=cpu_sync", "name=again"])
    path = spec_of(wanted, here / "old")
    assert main(["task=rerun", f"spec={path.relative_to(here)}", "launch.dry_run=true"]) == 0
    plan = capsys.readouterr().out
    assert "again" in plan
    assert "cpu_sync" in plan
    assert plan.count("\nrank ") == 4


def test_a_file_that_was_changed_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shipped():
        path = spec_of(job(), here / "old")
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert main(["task=rerun", f"spec={path.relative_to(here)}"]) == 2
    assert "is not the one that its sha256 names" in capsys.readouterr().err


def test_trust_in_a_file_is_not_taken_over(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shipped():
        path = spec_of(job(["trusted_targets=[nobody]", "step._target_=nobody.Step"]), here / "old")
    command = ["task=rerun", f"spec={path.relative_to(here)}", "launch.dry_run=true"]
    assert main(command) == 2
    assert "if you mean it, type trusted_targets=[nobody]" in capsys.readouterr().err
    assert main([*command, "trusted_targets=[nobody]"]) == 0


def test_a_run_never_goes_into_a_folder_that_holds_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with shipped():
        spec_of(job(), here / "old")
    assert main(["hydra.run.dir=old"]) == 2
    assert "holds a run already" in capsys.readouterr().err


def test_an_arm_that_fails_leaves_the_others_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "trainer.seed=0,-1,2", "task=simulate", "sim.num_samples=500", "trainer.num_epochs=1"]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("virtual time") == 2
    assert "1 of 3 arms failed" in shown.err
    assert "trainer.seed=-1: must be a whole number >= 0" in shown.out, "in the table of failures"


def test_with_another_launcher_the_failed_arms_are_listed_all_the_same(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-m", "hydra/launcher=basic", "trainer.seed=0,-1", "elche.mode=cpu_async", "task=simulate"]
    assert main([*command, "sim.num_samples=500", "trainer.num_epochs=1"]) == 1
    assert "trainer.seed=-1: must be a whole number >= 0" in capsys.readouterr().err


def test_a_sweep_has_one_folder_and_a_folder_per_arm(here: Path) -> None:
    assert main(["-m", "trainer.seed=1,2", "launch.dry_run=true"]) == 0
    sweeps = list((here / "outputs" / "multirun").glob("*/*"))
    assert len(sweeps) == 1
    assert sorted(p.name for p in sweeps[0].iterdir() if p.is_dir()) == ["0", "1"]


@pytest.mark.parametrize("signal", [Interrupted("a signal"), KeyboardInterrupt()], ids=["in a run", "before it"])
def test_after_an_interrupted_arm_no_other_begins_and_what_does_them_is_said(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signal: BaseException
) -> None:
    from flodl.tasks import TASKS, Order

    begun: list[int] = []

    def interrupted(order: Order) -> None:
        begun.append(order.job.trainer.seed)
        raise signal

    monkeypatch.setitem(TASKS, "train", dataclasses.replace(TASKS["train"], plan=interrupted))
    assert main(["-m", "trainer.seed=1,2,3", "launch.dry_run=true"]) == 130
    assert begun == [1]
    shown = capsys.readouterr()
    again = "python -m flodl -m trainer.seed=1,2,3 launch.dry_run=true hydra.launcher.skip_completed=true"
    assert shown.err.endswith(f"3 of 3 arms were interrupted or not started; to do these anew: {again}\n")
    assert shown.out.count("not started: arm 0 was interrupted") == 2


def test_two_starts_in_one_second_get_two_folders(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf

    hooks.register()
    node = OmegaConf.create({"run": {"dir": f"{here}/12-00-00-${{flodl.tag:}}"}}).run
    monkeypatch.setattr(hooks._tag, "text", "aaaa")
    hooks._claim(node)
    first = Path(node.dir)
    hooks._claim(node)  # another process drew the same tag in the same second
    assert first.name == "12-00-00-aaaa"
    assert first != Path(node.dir)
    assert first.is_dir()
    assert Path(node.dir).is_dir()


def test_an_unknown_flag_is_refused_with_the_usage(here: Path) -> None:
    done = flodl("--no-such-flag", cwd=here)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("reader", ["head -c 1", "true"], ids=["closes early", "has closed before"])
def test_a_closed_pipe_is_no_error(here: Path, reader: str) -> None:
    command = f"{sys.executable} -m flodl --help | {reader}; exit ${{PIPESTATUS[0]}}"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, timeout=120, check=False,
                          env=buffered | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == ""
