"""Tasks that prepare and watch real hosts over SSH: what is typed is done on each, and told with its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import yaml
from packaging.requirements import Requirement

from flodl.record.status import read_status
from flodl.tasks.host_nccl import version_of
from tests.e2e.command import command
from tests.lab.lab import Lab
from tests.lab.running import ENDLESS, awaited
from tests.tasks.standins import library, nccl_wheel, stub_wheel

ROOT = Path(__file__).parents[2]
HOSTS = ("node-a", "node-b", "node-c")
SMI = "#!/bin/sh\ncase \"$*\" in *name,*) echo 'GTX 1060, 6.1, 6144, 580.1';; *) echo 6.1;; esac\n"
TORCH = (
    "class version:\n    cuda = '12.6'\n"
    "class cuda:\n    class nccl:\n        version = staticmethod(lambda: ({}))\n"
    "__version__ = '2.10.0+cu126'\n"
)


def flodl(desk: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "launch")])
    return subprocess.run([sys.executable, "-m", "flodl", *arguments], cwd=desk, capture_output=True, text=True,
                          timeout=200, env={**os.environ, "PYTHONPATH": paths, **env})  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def rewritten(desk: Path, lab: Lab, **changes: object) -> Path:
    """conf/cluster/lab.yaml with other values in every worker; None: without that key."""
    cluster = lab.cluster()
    for worker in cluster["workers"]:
        worker.update(changes)
    return lab.write_cluster(desk / "conf/cluster/lab.yaml", cluster)


def test_hostile_words_of_a_command_arrive_and_nothing_of_them_is_executed(lab: Lab, desk: Path) -> None:
    done = flodl(
        desk, "task=exec", "cluster=lab", "command=[printf,'%s|','$(touch /srv/canary)','a b',';touch /srv/canary']"
    )
    assert told(done) == [f"[{name}] $(touch /srv/canary)|a b|;touch /srv/canary|" for name in HOSTS]
    assert not [name for name in HOSTS if lab[name].path("/srv/canary").exists()]


def test_a_command_runs_in_the_project_of_every_host_and_those_on_which_it_fails_are_told_together(
    lab: Lab, desk: Path
) -> None:
    lab["node-a"].write("/srv/project/only", "here")
    lab.stop_sshd("node-c")
    done = flodl(desk, "task=exec", "cluster=lab", "command='hostname; pwd; cat only'")
    assert done.returncode == 1
    said = {f"[{name}] {line}" for name in ("node-a", "node-b") for line in (name, "/srv/project")}
    assert said | {"[node-a] here"} <= set(done.stdout.splitlines())
    assert "node-b: sh -c 'hostname; pwd; cat only' ended with 1" in done.stderr
    assert "node-c: " in done.stderr


def test_an_interrupted_command_ends_on_every_host(lab: Lab, desk: Path) -> None:
    with command(desk, "task=exec", "cluster=lab", "command='sleep 500 & wait'") as run:
        awaited(lambda: all("sleep 500" in lab[name].processes().values() for name in HOSTS), 30)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(15) == 130
    awaited(lambda: not [name for name in HOSTS if "sleep 500" in lab[name].processes().values()], 2)  # being reaped


def test_a_cluster_file_is_written_from_what_the_hosts_say_and_composes(lab: Lab, desk: Path) -> None:
    home = desk / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text((lab.folder / "ssh_config").read_text())
    lab["node-b"].write("/root/bin/nvidia-smi", SMI, mode=0o755)
    lab["node-b"].write("/root/.bashrc", "export PATH=/root/bin:$PATH\necho noise of a login shell\n")
    done = flodl(desk, "task=init", "hosts=[node-a,root@node-b]", HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    text = (desk / "conf/cluster/mine.yaml").read_text()
    tree = yaml.safe_load(text)
    assert tree["controller"]["host"] == lab.controller
    first, second = tree["workers"]
    assert (first["host"], first["local_devices"]) == ("node-a", "cpu:1")
    assert (second["host"], second["local_devices"], second["ssh"]) == ("node-b", "all", {"user": "root"})
    assert "# GPU 0: GTX 1060, 6144 MiB, capability 6.1, driver 580.1" in text
    interface = lab.cluster()["workers"][0]["nccl_socket_ifname"]
    assert (first["nccl_socket_ifname"], second["nccl_socket_ifname"]) == (interface, interface)
    assert flodl(desk, "cluster=mine", "launch.dry_run=true", HOME=str(home)).returncode == 0


def test_an_environment_is_made_over_ssh_and_written_into_the_cluster_file(lab: Lab, desk: Path) -> None:
    file = rewritten(desk, lab, python=None)
    cluster = yaml.safe_load(file.read_text())
    cluster["workers"] = [worker for worker in cluster["workers"] if worker["host"] == "node-b"]
    lab.write_cluster(file, cluster)
    file.write_text("# mine\n" + file.read_text())
    node = lab["node-b"]
    links = desk / "links"
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        asked = Requirement(text)
        least = next(part.version for part in asked.specifier if part.operator == ">=")
        stub_wheel(links, asked.name, least, TORCH.format("2, 27, 5") if asked.name == "torch" else "")
    for wheel in links.iterdir():
        node.path("/srv/links").mkdir(exist_ok=True)
        node.path(f"/srv/links/{wheel.name}").write_bytes(wheel.read_bytes())
    node.write("/root/bin/nvidia-smi", SMI, mode=0o755)
    node.write(
        "/root/.bashrc",
        f"export PATH=/root/bin:{Path(sys.executable).parent}:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/links\n",
    )
    done = flodl(desk, "task=setup", "cluster=lab")
    assert done.returncode == 0, done.stdout + done.stderr
    python = "/srv/project/envs/sm61/bin/python"
    assert f"[node-b] {python} is ready: torch 2.10.0+cu126, CUDA 12.6, flodl " in done.stdout
    assert "GPUs of capability 6.1: torch>=2.10,<2.15 from https://download.pytorch.org/whl/cu126" in done.stdout
    assert file.read_text().startswith("# mine\n")
    assert yaml.safe_load(file.read_text())["workers"][0]["python"] == python
    assert [p.name for p in node.path("/srv/project/envs").iterdir()] == ["sm61"]


def test_a_bridge_is_pushed_to_the_host_that_needs_it(lab: Lab, desk: Path) -> None:
    """No host has a way to a registry; the controller has."""
    file = rewritten(desk, lab, python="/srv/stub/python")
    for name, version in (("node-a", "2, 27, 5"), ("node-b", "2, 25, 1"), ("node-c", "2, 27, 3")):
        lab[name].write("/srv/stub/site/torch.py", TORCH.format(version))
        lab[name].write("/srv/stub/site/pip.py", "raise SystemExit('ERROR: no route to a registry')\n")
        lab[name].write(
            "/srv/stub/python", f'#!/bin/sh\nPYTHONPATH=/srv/stub/site exec {sys.executable} "$@"\n', mode=0o755
        )
        lab[name].write("/root/bin/nvidia-smi", SMI, mode=0o755)
        lab[name].write("/root/.bashrc", "export PATH=/root/bin:$PATH\n")
    nccl_wheel(desk / "links", "12", "2.27.5", library("2.27.5", (61,)))
    done = flodl(desk, "task=nccl_build", "cluster=lab", "write=true", PIP_NO_INDEX="1",
                 PIP_FIND_LINKS=(desk / "links").as_uri())  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[node-b] cannot download it; this machine tries, and pushes it" in done.stdout
    made = "/srv/project/nccl/v2.27.5-wheel/lib/libnccl.so.2"
    assert version_of(lab["node-b"].path(made)) == "2.27.5"
    assert [p.name for p in lab["node-b"].path("/srv/project/nccl").iterdir()] == ["v2.27.5-wheel"]
    workers = yaml.safe_load(file.read_text())["workers"]
    assert [worker.get("env") for worker in workers] == [None, {"LD_PRELOAD": made}, None]
    assert not [name for name in ("node-a", "node-c") if lab[name].path("/srv/project/nccl").exists()]


def test_a_detached_run_over_three_hosts_is_watched_and_stopped(lab: Lab, desk: Path) -> None:
    done = flodl(desk, *ENDLESS, "launch.detach=true")
    assert done.returncode == 0, done.stdout + done.stderr
    log = desk / "run" / "controller.log"
    awaited(lambda: "epoch 1: loss" in log.read_text(errors="replace"), 120)
    shown = ""
    while "r5 " not in shown:  # six ranks share the work; the status is written every other second
        shown = flodl(desk, "task=status", "run=run").stdout
    assert f"state       running: process {read_status(desk / 'run' / 'status.json').pid}, " in shown
    stopped = flodl(desk, "task=stop", "run=run")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "interrupted after " in stopped.stdout
    awaited(lambda: not lab.processes(), 5.0)


def test_a_dry_run_leaves_every_host_as_it_was(lab: Lab, desk: Path) -> None:
    rewritten(desk, lab, python=None)  # for task=setup; the others find the same one by the controller's path
    for name in HOSTS:
        lab[name].write("/root/.bashrc", f"export PATH={Path(sys.executable).parent}:$PATH\n")
    words = {"probe": [], "exec": ["command='touch canary'"], "setup": [], "nccl_build": ["tag=2.27.5"]}
    with ThreadPoolExecutor(len(words)) as pool:
        plan = {task: pool.submit(flodl, desk, f"task={task}", "cluster=lab", "launch.dry_run=true", *more)
                for task, more in words.items()}  # fmt: skip
    done = {task: future.result() for task, future in plan.items()}
    bridge = done.pop("nccl_build")
    if torch.version.cuda is None:
        assert "its torch is a CPU build" in bridge.stderr
    for task, run in done.items():
        assert run.returncode == 0, run.stderr
        assert all(f"[{name}] " in run.stdout for name in HOSTS), task
    assert [list(lab[name].path("/srv/project").iterdir()) for name in HOSTS] == [[], [], []]
