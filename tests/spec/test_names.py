"""Names and folders of a cluster file arrive byte for byte, or are refused with key, value and remedy."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.errors import ConfigError
from flodl.spec.codec import canonical_json, decode_job, job_to_plain
from flodl.spec.names import (
    environment_fault,
    file_fault,
    folder_fault,
    host_fault,
    interface_fault,
    jump_fault,
    run_name_fault,
    service_fault,
    user_fault,
)
from tests.spec.trees import worker, workers

HOSTILE = ["a b", "a'b", 'a"b', "$(touch x)", "`touch x`", "a;b", "a|b", "a&b", "a\nb", "a\0b", "-oProxyCommand=x", "",
           "a\x1b[31mb", "a<b", "{a,b}", "a\u2028b"]  # fmt: skip
IN_PATHS = ["a b", "a'b", 'a"b', "$(touch x)", "`touch x`", "a;b", "a=b", "-rf", "größe/模型", "a\\b", "*", "~"]


def refused(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        decode_job(tree)
    return [str(problem) for problem in caught.value.problems]


def of_worker(key: str, value: str) -> dict[str, Any]:
    block, _, name = key.rpartition(".")
    keys: dict[str, Any] = {block: {name: value}} if block else {name: value}
    return workers(worker(**keys))


NAMES = ["host", "ssh.target", "ssh.user", "ssh.proxy_jump", "docker", "nccl_socket_ifname"]
FOLDERS = ["path", "data_path", "python", "ssh.identity_file", "ssh.known_hosts"]


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_with_its_key_and_a_remedy(key: str, text: str) -> None:
    (said,) = refused(of_worker(key, text))
    assert said.startswith(f"cluster.workers[0].{key}=")
    assert "; " in said
    assert "\n" not in said, "what is shown is one line"


@pytest.mark.parametrize("key", FOLDERS)
@pytest.mark.parametrize("text", IN_PATHS)
def test_a_hostile_folder_is_kept_byte_for_byte(key: str, text: str) -> None:
    value = f"/srv/{text}/project"
    job = decode_job(of_worker(key, value))
    kept: Any = job.cluster.workers[0]
    for name in key.split("."):
        kept = getattr(kept, name)
    assert kept == value
    assert decode_job(job_to_plain(job)) == job
    assert canonical_json(job).decode().count("\n") == 0


@pytest.mark.parametrize("key", [*FOLDERS, "arch"])
@pytest.mark.parametrize("control", ["\n", "\r", "\0", "\x1b", "\x7f", "\u2028"], ids=ascii)
def test_a_folder_of_several_lines_is_refused(key: str, control: str) -> None:
    start = "" if key == "arch" else "/"
    (said,) = refused(of_worker(key, f"{start}a{control}b"))
    assert said.startswith(f"cluster.workers[0].{key}='")
    assert f"holds the control character {control!r}; rename" in said


@pytest.mark.parametrize(
    ("text", "remedy"), [("project", "/project"), ("~/project", "/project"), ("./a b", "/a b"), ("-rf", "/-rf")]
)
def test_a_folder_on_a_host_is_written_in_full(text: str, remedy: str) -> None:
    for key in ("path", "data_path"):
        (said,) = refused(of_worker(key, text))
        assert said == f"cluster.workers[0].{key}={text}: must be an absolute path; write it in full: {remedy}"


@pytest.mark.parametrize("text", ["node-a", "10.0.0.1", "fe80::1%eth0", "::1", "node_a.lan", "knoten-ä", "localhost"])
def test_such_names_are_names_of_hosts(text: str) -> None:
    assert host_fault(text) is None


def test_a_user_before_the_host_has_a_key_of_its_own() -> None:
    (said,) = refused(of_worker("ssh.target", "me@old"))
    assert said.endswith("is no name of a host; put the user into ssh.user")


@pytest.mark.parametrize("text", ["me", "me.too", "DOM\\me", "me@realm", "_www", "host$", "jürgen", "a-b"])
def test_such_names_are_names_of_users(text: str) -> None:
    assert user_fault(text) is None


@pytest.mark.parametrize("text", ["gate", "me@gate", "me@gate:2222", "a,b@c:22", "[::1]:22", "me@[fe80::1%e]:1"])
def test_such_ways_lead_to_hosts(text: str) -> None:
    assert jump_fault(text) is None


@pytest.mark.parametrize("text", ["enp1s0", "eth0.100", "eth0:1", "br-0123456789ab", "lo", "wlp2s0f0u1i2", "v_1"])
def test_such_names_are_names_of_interfaces(text: str) -> None:
    assert interface_fault(text) is None


@pytest.mark.parametrize("text", ["^lo", "=eth0", "eth0,eth1", "a/b", "sixteen-letters-", "10.0.0.1", "::1"])
def test_rules_of_nccl_are_no_names_of_interfaces(text: str) -> None:
    assert interface_fault(text) is not None


def test_what_ip_prints_after_the_name_is_left_out() -> None:
    (said,) = refused(of_worker("nccl_socket_ifname", "veth0@if5"))
    assert said.endswith("one name as `ip -br addr` lists it, without @ and what follows")


@pytest.mark.parametrize("text", ["builds/sm61", "sm120", "my env", "-x"])
def test_such_names_are_environments(text: str) -> None:
    assert environment_fault(text) is None


@pytest.mark.parametrize("text", ["/abs", "../x", "a/../b", ".."])
def test_an_environment_lies_below_the_project(text: str) -> None:
    fault = environment_fault(text)
    assert fault is not None
    assert "below <path>/envs" in fault[0]


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "*"])
@pytest.mark.parametrize("key", ["host", "bind"])
def test_nothing_listens_on_every_interface(key: str, text: str) -> None:
    (said,) = refused(workers(worker(), controller={key: text}))
    assert said.startswith(f"cluster.controller.{key}={text}: is every interface at once; name one address")


@pytest.mark.parametrize("name", ["run 5", "$(touch x)", "-rf", "größe 模型", "a/b", "'", '"'])
def test_the_name_of_a_run_is_kept_byte_for_byte(name: str) -> None:
    tree = workers(worker()) | {"name": name}
    assert decode_job(tree).name == name


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "a\u202eb", "x" * 201])
def test_a_run_has_a_name_of_one_line(name: str) -> None:
    (said,) = refused(workers(worker()) | {"name": name})
    assert said.startswith("name=")
    assert "\n" not in said
    assert "\x1b" not in said


@pytest.mark.parametrize("value", ["a b", "'", '"', "$(touch x)", "a\nb", "ü", "-x", "", "a=b;c"])
def test_the_value_of_a_variable_is_kept_byte_for_byte(value: str) -> None:
    job = decode_job(workers(worker(env={"A": value}), env={"B": value}))
    assert (job.cluster.workers[0].env, job.cluster.env) == ({"A": value}, {"B": value})


def test_a_variable_is_set_or_passed_on_but_not_both() -> None:
    found = refused(workers(worker(env={"A": "x"}), env={"A": "x"}, env_pass=["A"]))
    assert found == [
        "cluster.env.A: is in cluster.env_pass too; keep one of the two",
        "cluster.workers[0].env.A: is in cluster.env_pass too; keep one of the two",
    ]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"])
def test_what_an_interpreter_reads_at_its_start_cannot_be_passed_on(name: str) -> None:
    (said,) = refused(workers(worker(), env_pass=[name]))
    assert said.startswith(f"cluster.env_pass[0]={name}: is read when an interpreter starts")
    assert decode_job(workers(worker(env={name: "/x"})))


@given(st.text())
def test_what_is_a_name_needs_no_quotes_in_a_shell_and_is_no_option(text: str) -> None:
    for judge in (host_fault, service_fault, interface_fault):
        if judge(text) is None:
            assert not text.startswith("-")
            assert shlex.split(text) == [text]
            assert not set(text) & set("$`;&|<>(){}*?!\"'\\ \t\n")
    if user_fault(text) is None:
        assert not text.startswith("-")
        assert not set(text) & set("`;&|<>(){}*?!\"' \t\n")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
def test_every_folder_without_control_characters_is_taken(text: str) -> None:
    assert folder_fault("/" + text) is None
    assert file_fault(text) is None


@given(st.text())
def test_the_name_of_a_run_is_refused_or_is_one_visible_line(text: str) -> None:
    if run_name_fault(text) is None:
        assert len(text.splitlines()) == 1
