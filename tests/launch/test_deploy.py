"""The working tree and data onto a host, over a real sshd and with the real rsync."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flodl.errors import ConfigError, HostUnready
from flodl.ports import Deploy, HostCall, PushProgress
from flodl.spec.cluster import ClusterSpec, ControllerSpec, DeploySpec, HostSpec
from flodl_launch.deploy import deploy
from flodl_launch.files import project_files
from flodl_launch.openssh import client_config
from flodl_launch.route import route
from tests.engine.live import children, cmdline, wait_gone
from tests.launch.sshd import USER, Sshd

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync")

ODD = ["two words.py", "it's $(touch canary).py", "größe.py", "-dash.py", "new\nline.py", "deep/er/x.py"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with odd names, ignored files, outputs and something that nobody has added yet."""
    folder = tmp_path / "my project"
    for name in (*ODD, "kept.py", "gone.py", "cache.bin", "outputs/a/log", "__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("*.bin\n__pycache__\n")
    (folder / "link.py").symlink_to("kept.py")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=30)
    subprocess.run(["git", "-C", str(folder), "add", "kept.py", "gone.py", ".gitignore"], check=True, timeout=30)
    return folder


def push(calls: list[HostCall], project: Path, data: Path | None = None, code: str = "rsync") -> list[PushProgress]:
    seen: list[PushProgress] = []
    cluster = ClusterSpec(
        workers=tuple(call.spec for call in calls),
        controller=ControllerSpec(data_path=str(data) if data else None),
        deploy=DeploySpec(code=code, data="rsync" if data else "none"),  # type: ignore[arg-type]
    )
    port: Deploy = deploy
    troubles = port(cluster, calls, project, seen.append)
    if troubles:
        raise troubles[0]
    return seen


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_what_git_would_take_up_is_pushed_and_outputs_are_not(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    target = tmp_path / "a host" / "its $(touch canary) place"
    seen = push([sshd.call(path=str(target))], project)
    pushed = {*ODD, "kept.py", "gone.py", ".gitignore", "link.py"}
    assert names_in(target) == {*pushed, ".flodl-deployed"}
    assert all((target / name).read_text() == name for name in ODD)
    assert (target / "link.py").readlink() == Path("kept.py")
    assert {(p.host, p.what) for p in seen} == {("node-a", "code")}
    assert seen[-1].percent == 100
    assert not (Path.home() / "canary").exists()


def test_what_the_project_no_longer_has_goes_and_what_the_host_has_of_its_own_stays(
    sshd: Sshd, project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    (target / "envs").mkdir(parents=True)
    (target / "envs" / "python").write_text("the host's own")
    call = sshd.call(path=str(target))
    push([call], project)
    (project / "gone.py").unlink()  # git still lists it
    (project / "new\nline.py").unlink()
    before = (project / "kept.py").stat()
    (project / "kept.py").write_text("tpek.py")  # of equal size and, as a restored file may be, equal time
    os.utime(project / "kept.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    push([call], project)
    assert not (target / "gone.py").exists()
    assert not (target / "new\nline.py").exists()
    assert (target / "kept.py").read_text() == "tpek.py"
    assert (target / "envs" / "python").read_text() == "the host's own"


def test_a_file_that_goes_while_the_project_is_pushed_is_no_error(
    monkeypatch: pytest.MonkeyPatch, sshd: Sshd, project: Path, tmp_path: Path
) -> None:
    """As the status of a run whose folder lies in the project does all the time."""
    listed = [*project_files(project), "run/.status.json.1.tmp"]
    monkeypatch.setattr("flodl_launch.deploy.project_files", lambda _: listed)
    push([sshd.call(path=str(tmp_path / "t"))], project)
    assert (tmp_path / "t" / "kept.py").exists()


def test_a_forged_list_deletes_nothing_outside_the_folder(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    target, precious = tmp_path / "target", tmp_path / "precious"
    target.mkdir()
    precious.write_text("x")
    (target / ".flodl-deployed").write_text(f'"../precious"\n"{precious}"\n"deep/../../precious"\nnot json\n')
    push([sshd.call(path=str(target))], project)
    assert precious.exists()


def test_data_is_pushed_to_the_hosts_place_for_it_with_an_estimate(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    data, target = tmp_path / "data of mine", tmp_path / "target"
    (data / "train").mkdir(parents=True)
    (data / "train" / "images.bin").write_bytes(os.urandom(8_000_000))
    call = sshd.call(path=str(target))
    seen = push([call], project, data, code="none")
    assert (target / "data" / "train" / "images.bin").read_bytes() == (data / "train" / "images.bin").read_bytes()
    assert seen[-1].percent == 100
    assert seen[-1].sent_bytes == 8_000_000
    assert seen[-1].rate.endswith("/s")
    elsewhere = msgspec.structs.replace(call, spec=msgspec.structs.replace(call.spec, data_path=str(tmp_path / "set")))
    push([elsewhere], project, data, code="none")
    assert (tmp_path / "set" / "train" / "images.bin").exists()
    assert push([call], project, data, code="none")[-1].sent_bytes == 0  # it is there already


def test_a_data_path_that_is_no_folder_is_refused(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.controller\.data_path=.*nowhere"):
        push([sshd.call(path=str(tmp_path / "t"))], project, tmp_path / "nowhere")


def test_this_machine_is_pushed_to_without_ssh_and_not_onto_itself(project: Path, tmp_path: Path) -> None:
    before = names_in(project)
    push([HostCall(spec=HostSpec(host="here"), here=True, path=str(project))], project)
    assert names_in(project) == before
    push([HostCall(spec=HostSpec(host="here"), here=True, path=str(tmp_path / "copy"))], project)
    assert (tmp_path / "copy" / "kept.py").exists()


def test_the_way_leads_through_jump_hosts(make_sshd: Callable[..., Sshd], project: Path, tmp_path: Path) -> None:
    gate, target = make_sshd(), make_sshd()
    gate.authorized.write_text(gate.authorized.read_text() + target.authorized.read_text())
    with target.known_hosts.open("a") as file:
        file.write(gate.known_hosts.read_text())
    call = target.call(path=str(tmp_path / "target"), proxy_jump=f"{USER}@127.0.0.1:{gate.port}")
    push([call], project)
    assert (tmp_path / "target" / "kept.py").exists()
    config = client_config(route(call))
    assert "ProxyJump flodl-host-1" in config
    assert config.count("StrictHostKeyChecking yes") == 2


def test_troubles_of_all_hosts_are_told_together(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    def named(label: str, **ssh: object) -> HostCall:
        call = sshd.call(path=str(tmp_path / label), **ssh)
        return msgspec.structs.replace(call, spec=msgspec.structs.replace(call.spec, host=label))

    calls = [named("a"), named("b", known_hosts="/dev/null"), named("c", port=1)]
    cluster = ClusterSpec(workers=tuple(call.spec for call in calls), deploy=DeploySpec(code="rsync"))
    troubles = deploy(cluster, calls, project, lambda _: None)
    assert [(trouble.host, trouble.kind) for trouble in troubles] == [("b", "host_key_unknown"), ("c", "refused")]
    assert (tmp_path / "a" / "kept.py").exists()


def test_what_a_login_shell_writes_does_not_reach_rsync(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    """More of it than a pipe holds, and none of it ends with a line break."""
    sshd.before_commands("seq 30000; printf 'Welcome'; echo oops >&2")
    push([sshd.call(path=str(tmp_path / "t"))], project)
    assert (tmp_path / "t" / "kept.py").read_text() == "kept.py"


def test_a_host_whose_disk_is_full_says_where_to_make_room(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True, timeout=10)
    try:
        (project / "kept.py").write_bytes(os.urandom(200_000))
        with pytest.raises(HostUnready, match="code was not pushed: rsync ended with") as caught:
            push([sshd.call(path=str(small))], project)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True, timeout=10)
    assert f"its disk is full: make room at {small} on that host" in caught.value.remedy


def test_an_interrupted_push_leaves_no_program_here_or_there(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    sshd.before_commands('case "$SSH_ORIGINAL_COMMAND" in *"rsync --server"*) sleep 60;; esac')
    call = sshd.call(path=str(tmp_path / "t"))
    cluster = ClusterSpec(workers=(call.spec,), deploy=DeploySpec(code="rsync"))
    programs: list[int] = []

    def interrupt() -> None:
        while len(programs) < 3:  # rsync, what drops the noise, ssh
            time.sleep(0.02)
            lines = {pid: cmdline(pid) for pid in children(os.getpid())}
            programs[:] = [pid for pid, line in lines.items() if b"quiet.py" in line or line.startswith(b"ssh\0")]
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        deploy(cluster, [call], project, lambda _: None)
    wait_gone(programs, 5.0)


def test_a_host_without_rsync_is_told_so(sshd: Sshd, project: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "mkdir", "cat", "sed", "cut"):
        (programs / name).symlink_to(f"/bin/{name}")
    sshd.before_commands(f"export PATH='{programs}'")
    with pytest.raises(HostUnready, match="there is no rsync on that host"):
        push([sshd.call(path=str(tmp_path / "target"))], project)


def test_a_path_that_cannot_be_made_is_told(sshd: Sshd, project: Path) -> None:
    with pytest.raises(HostUnready, match="/proc/nowhere cannot be written to") as caught:
        push([sshd.call(path="/proc/nowhere")], project)
    assert caught.value.kind == "no_path"


def test_a_folder_that_is_no_repository_goes_without_caches_and_environments(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", "outputs/x", ".venv/bin/python", "envs/e/x", "pkg/__pycache__/b.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert project_files(tmp_path) == ["a.py", "pkg/b.py"]
