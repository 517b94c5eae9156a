"""Logins to a real sshd that fail are told apart, and nothing is sent before the server's key was accepted."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flodl.errors import HostUnready
from flodl.ports import HostCall
from flodl.spec.cluster import HostSpec, SshSpec
from flodl_launch.known import known_hosts_files, known_keys
from flodl_launch.route import CONNECT_SECONDS, route
from flodl_launch.ssh import log_in
from tests.launch.sshd import USER, Sshd, free_port, keygen

Make = Callable[..., Sshd]


def refusal(call: HostCall) -> HostUnready:
    with pytest.raises(HostUnready) as caught:
        log_in(call)
    assert caught.value.host == "node-a"
    assert caught.value.remedy
    return caught.value


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing of ssh's in it, and no agent."""
    home = tmp_path / "home of a user"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that takes calls and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_login_gets_in_and_leaves_nothing(sshd: Sshd, home: Path) -> None:
    before = threading.active_count()
    login = log_in(sshd.call())
    assert login.transport.is_authenticated()
    assert login.news == ()
    login.close()
    login.close()
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.02)
    assert threading.active_count() == before


def test_nothing_listens(sshd: Sshd) -> None:
    found = refusal(sshd.call(port=free_port()))
    assert found.kind == "refused"
    assert "nothing listens on 127.0.0.1:" in found.message


def test_the_name_leads_nowhere(sshd: Sshd) -> None:
    found = refusal(sshd.call(target="no-such-host.invalid"))
    assert found.kind == "unreachable"
    assert "no-such-host.invalid leads to no address" in found.message


def test_the_user_is_wrong(sshd: Sshd) -> None:
    found = refusal(sshd.call(user="nobody-we-know"))
    assert found.kind == "auth"
    assert f"nobody-we-know@127.0.0.1:{sshd.port} was not entered" in found.message
    assert "ssh-copy-id" in found.remedy


def test_the_key_is_not_authorized(sshd: Sshd, tmp_path: Path) -> None:
    other = keygen(tmp_path / "another")
    found = refusal(sshd.call(identity_file=str(other)))
    assert found.kind == "auth"
    assert str(other) in found.message


def test_the_key_has_a_passphrase(sshd: Sshd, tmp_path: Path, home: Path) -> None:
    found = refusal(sshd.call(identity_file=str(keygen(tmp_path / "locked", "a passphrase"))))
    assert found.kind == "auth"
    assert "has a passphrase" in found.message
    assert "ssh-add" in found.remedy


def test_the_named_key_is_not_there(sshd: Sshd) -> None:
    found = refusal(sshd.call(identity_file="/no/such/key"))
    assert (found.kind, found.message) == ("auth", "ssh.identity_file=/no/such/key is no file")


def test_there_is_no_key_at_all(sshd: Sshd, home: Path) -> None:
    found = refusal(sshd.call(identity_file=None))
    assert found.kind == "auth"
    assert "there is no key to offer" in found.message


def test_an_unknown_key_is_refused_and_shown_before_anything_is_sent(sshd: Sshd, tmp_path: Path) -> None:
    found = refusal(sshd.call(known_hosts=str(tmp_path / "none")))
    words = ["ssh-keygen", "-lf", f"{sshd.host_key}.pub"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=30).stdout.split()[1]
    assert found.kind == "host_key_unknown"
    assert shown in found.message
    assert "accept_new" in found.remedy
    assert "Postponed publickey" not in sshd.log()
    assert "Accepted" not in sshd.log()


def test_a_changed_key_is_refused_with_the_command_that_forgets_it(sshd: Sshd) -> None:
    sshd.stop()
    for file in (sshd.host_key, Path(f"{sshd.host_key}.pub")):
        file.unlink()
    keygen(sshd.host_key)
    sshd.start()
    for policy in ("reject", "accept_new"):
        found = refusal(sshd.call(host_key_policy=policy))
        assert found.kind == "host_key_changed"
    assert "Accepted" not in sshd.log()
    command = found.remedy.partition("`")[2].partition("`")[0]
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=30)
    assert sshd.known_hosts.read_text() == ""


def test_accept_new_writes_the_key_says_so_and_knows_it_from_then_on(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "a new folder" / "known_hosts"
    login = log_in(sshd.call(known_hosts=str(known), host_key_policy="accept_new"))
    login.close()
    assert "accepted the new host key" in login.news[0]
    assert known.read_text() == sshd.known_hosts.read_text()
    assert known.stat().st_mode & 0o777 == 0o600
    log_in(sshd.call(known_hosts=str(known))).close()


def test_a_new_key_goes_behind_a_line_without_its_end(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("# a comment without its end")
    log_in(sshd.call(known_hosts=str(known), host_key_policy="accept_new")).close()
    assert known.read_text().splitlines() == ["# a comment without its end", sshd.known_hosts.read_text().strip()]


def test_a_hashed_known_hosts_file_is_understood(sshd: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-H", "-f", str(sshd.known_hosts)], check=True, capture_output=True, timeout=30)
    assert sshd.known_hosts.read_text().startswith("|1|")
    log_in(sshd.call()).close()


LINES = {
    "its own name": "[127.0.0.1]:{port} {key}",
    "one of several names": "elsewhere,[127.0.0.1]:{port} {key} a comment",
    "a pattern": "[127.0.0.*]:* {key}",
    "a pattern of single signs": "[???.0.0.1]:{port} {key}",
    "a pattern that leaves it out": "[127.0.0.*]:*,![127.0.0.1]:* {key}",
    "a pattern of other hosts": "*.example.org {key}",
    "brackets that are no pattern of one sign": "[127.0.0.12]:{port} {key}",
    "its host on the usual port": "127.0.0.1 {key}",
    "another key first, for others": "* {other}\n[127.0.0.9]:{port} {key}",
    "revoked": "@revoked [127.0.0.1]:{port} {key}",
    "revoked by a pattern, and known": "[127.0.0.1]:{port} {key}\n@revoked * {key}",
    "revoked with tabs": "[127.0.0.1]:{port} {key}\n@revoked\t*\t{tabbed}",
    "its host, and another one revoked": "127.0.0.1 {key}\n@revoked * {other}",
    "another key of its host": "127.0.0.1 {other}",
    "two keys, the other one first": "[127.0.0.1]:{port} {other}\n[127.0.0.1]:{port} {key}",
    "a comment with a sign that ends lines elsewhere": "# x\x0c[127.0.0.1]:{port} {key}",
    "a comment with a carriage return": "# x\r[127.0.0.1]:{port} {key}",
    "a name in capitals": "[127.0.0.1]:{port},MYHOST {key}",
    "another one revoked": "@revoked * {other}\n[127.0.0.1]:{port} {key}",
    "an authority": "@cert-authority * {key}",
    "lines that say nothing": "# x\n\n@revoked\nelsewhere\n|1|x|y {key}\n127.0.0.2 ssh-ed25519 ***\n"
    "[127.0.0.1]:{port} {key}",
}


@pytest.mark.parametrize("form", LINES)
def test_a_file_of_known_hosts_is_read_as_openssh_reads_it(form: str, sshd: Sshd, tmp_path: Path) -> None:
    other = " ".join(Path(f"{keygen(tmp_path / 'other')}.pub").read_text().split()[:2])
    key = " ".join(Path(f"{sshd.host_key}.pub").read_text().split()[:2])
    known = tmp_path / "known_hosts"
    known.write_text(LINES[form].format(port=sshd.port, key=key, other=other, tabbed=key.replace(" ", "\t")) + "\n")
    options = [f"UserKnownHostsFile={known}", "GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=yes"]
    words = ["ssh", "-F", "none", "-i", str(sshd.identity), "-p", str(sshd.port), "-o", "BatchMode=yes"]
    words += [word for option in options for word in ("-o", option)]
    by_hand = subprocess.run([*words, f"{USER}@127.0.0.1", "true"], capture_output=True, timeout=30, check=False)
    call = sshd.call(known_hosts=str(known))
    if by_hand.returncode == 0:
        log_in(call).close()
    else:
        assert refusal(call).kind in ("host_key_unknown", "host_key_changed")


def test_another_server_of_a_known_host_is_a_new_one(sshd: Sshd, tmp_path: Path) -> None:
    other = " ".join(Path(f"{keygen(tmp_path / 'other')}.pub").read_text().split()[:2])
    sshd.known_hosts.write_text(f"127.0.0.1 {other}\n")
    assert refusal(sshd.call()).kind == "host_key_unknown"
    log_in(sshd.call(host_key_policy="accept_new")).close()
    log_in(sshd.call()).close()


def test_hashes_are_of_small_letters(tmp_path: Path) -> None:
    file, key = tmp_path / "known_hosts", Path(f"{keygen(tmp_path / 'key')}.pub").read_text()
    file.write_text(f"myhost {key}")
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], check=True, capture_output=True, timeout=30)
    (entry,) = known_keys([file], "MyHost", 22)
    assert entry.is_named


def test_a_revoked_key_is_refused_as_such_and_never_taken_anew(sshd: Sshd) -> None:
    key = " ".join(Path(f"{sshd.host_key}.pub").read_text().split()[:2])
    for line in (f"@revoked * {key}\n", f"@revoked * {key}\n[127.0.0.1]:{sshd.port} {key}\n"):
        sshd.known_hosts.write_text(line)
        for policy in ("reject", "accept_new"):
            found = refusal(sshd.call(host_key_policy=policy))
            assert f"line 1 of {sshd.known_hosts} says was revoked" in found.message
        assert sshd.known_hosts.read_text() == line
    assert "Accepted" not in sshd.log()


def test_a_key_that_a_pattern_contradicts_is_told_by_its_line(sshd: Sshd, tmp_path: Path) -> None:
    other = Path(f"{keygen(tmp_path / 'other')}.pub").read_text()
    sshd.known_hosts.write_text(f"# ours\n[127.0.0.*]:* {other}")
    found = refusal(sshd.call())
    assert found.kind == "host_key_changed"
    assert found.remedy == f"if you know why, correct line 2 of {sshd.known_hosts}"


def test_the_cluster_files_known_hosts_is_the_only_one() -> None:
    assert known_hosts_files("/x", ["/y"]) == (Path("/x"),)
    assert known_hosts_files(None, ["/y"])[0] == Path("/y")
    assert Path("~/.ssh/known_hosts").expanduser() in known_hosts_files(None)


def test_the_users_own_ssh_config_is_honoured(sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "config").write_text(
        f"Host node-a\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {USER}\n  IdentityFile ~/.ssh/mine\n"
        "  IdentityFile ~/.ssh/not-there\n"
    )
    shutil.copy(sshd.identity, home / ".ssh" / "mine")
    shutil.copy(sshd.known_hosts, home / ".ssh" / "known_hosts")
    log_in(HostCall(spec=HostSpec(host="node-a"))).close()
    found = refusal(HostCall(spec=HostSpec(host="node-a", ssh=SshSpec(user="nobody-we-know"))))
    assert "nobody-we-know@127.0.0.1" in found.message


def test_files_that_the_users_ssh_config_includes_are_honoured(sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "hosts of mine").mkdir()
    (home / ".ssh" / "config").write_text('Include "hosts of mine/*.conf"\nUser nobody-we-know\n')
    (home / ".ssh" / "hosts of mine" / "a.conf").write_text(
        f"Host node-a\n  HostName=127.0.0.1\n  Port {sshd.port}\n  User {USER}\n"
        f'  IdentityFile "{sshd.identity}"\n  UserKnownHostsFile ~/.ssh/mine\n'
    )
    shutil.copy(sshd.known_hosts, home / ".ssh" / "mine")
    log_in(HostCall(spec=HostSpec(host="node-a"))).close()
    assert route(HostCall(spec=HostSpec(host="another")))[0].user == "nobody-we-know"  # behind Include: for all hosts


def test_ssh_configs_that_include_each_other_are_refused(sshd: Sshd, home: Path) -> None:
    (home / ".ssh" / "config").write_text("Include config\n")
    found = refusal(sshd.call())
    assert found.kind == "protocol"
    assert "include each other without end" in found.message


def test_a_server_that_hangs_up_after_too_many_keys_has_not_let_us_in(make_sshd: Make, home: Path) -> None:
    sshd = make_sshd("MaxAuthTries 1")
    for kind in ("ecdsa", "ed25519"):
        words = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(home / ".ssh" / f"id_{kind}")]
        subprocess.run(words, check=True, timeout=30)
    found = refusal(sshd.call(identity_file=None))
    assert found.kind == "auth"
    assert "the keys of the agent and of ~/.ssh" in found.message


def test_a_fabric_file_of_the_user_changes_nothing(sshd: Sshd, home: Path) -> None:
    (home / ".fabric.yaml").write_text("user: nobody-we-know\nconnect_kwargs: {password: x}\n")
    log_in(sshd.call(user=None)).close()


def test_a_server_that_says_nothing_is_given_ten_seconds(
    sshd: Sshd, mute: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CONNECT_SECONDS == 10.0
    for module in ("route", "ssh"):  # a second, here
        monkeypatch.setattr(f"flodl_launch.{module}.CONNECT_SECONDS", 1.0)
    begun = time.monotonic()
    found = refusal(sshd.call(port=mute))
    assert found.kind == "timeout"
    assert "takes calls" in found.message
    assert 1.0 <= time.monotonic() - begun < CONNECT_SECONDS


def test_a_web_server_is_no_ssh_server(sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 101)
                line.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        found = refusal(sshd.call(port=server.getsockname()[1]))
    assert found.kind == "protocol"
    assert "HTTP/1.1" in found.message


@pytest.mark.parametrize("key", ["target", "user"])
@pytest.mark.parametrize("value", ["-oProxyCommand=touch canary", "$(touch canary)\n", "a b"])
def test_names_that_read_as_something_else_are_refused(sshd: Sshd, key: str, value: str) -> None:
    found = refusal(sshd.call(**{key: value}))
    assert found.kind == "protocol"
    assert repr(value) in found.message


def test_a_jump_host_is_passed_under_the_same_rules(make_sshd: Make) -> None:
    gate, target = make_sshd(), make_sshd()
    gate.authorized.write_text(gate.authorized.read_text() + target.authorized.read_text())
    with target.known_hosts.open("a") as file:
        file.write(gate.known_hosts.read_text())
    login = log_in(target.call(proxy_jump=f"{USER}@127.0.0.1:{gate.port}"))
    assert login.transport.is_authenticated()
    login.close()
    assert "Accepted publickey" in gate.log()
    target.know()
    found = refusal(target.call(proxy_jump=f"{USER}@127.0.0.1:{gate.port}"))
    assert found.kind == "host_key_unknown"
    assert f"127.0.0.1:{gate.port}" in found.message


def test_a_host_that_the_jump_host_cannot_reach_is_told_as_such(make_sshd: Make) -> None:
    gate = make_sshd()
    found = refusal(gate.call(port=free_port(), proxy_jump=f"{USER}@127.0.0.1:{gate.port}"))
    assert found.kind == "unreachable"
    assert "127.0.0.1 did not open a line to" in found.message


def test_24_logins_at_a_server_that_drops_most_of_them_all_get_in(make_sshd: Make) -> None:
    sshd = make_sshd("MaxStartups 3:50:6")
    with ThreadPoolExecutor(24) as pool:
        logins = list(pool.map(lambda _: log_in(sshd.call()), range(24)))
    assert all(login.transport.is_authenticated() for login in logins)
    for login in logins:
        login.close()
    assert "MaxStartups" in sshd.log()  # it did drop some
