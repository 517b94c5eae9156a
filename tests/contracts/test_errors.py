"""Errors keep what they know on the way between two processes of a sweep."""

from __future__ import annotations

import pickle

from flodl.errors import ConfigError, FlodlError, HostUnready, Interrupted, Problem, Skipped


def again(error: FlodlError) -> FlodlError:
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own


def test_an_error_arrives_with_all_that_it_holds() -> None:
    problems = (Problem(key="a.b", value="1", constraint="is wrong"), Problem(key="c", constraint="too"))
    wrong = again(ConfigError(problems))
    assert isinstance(wrong, ConfigError)
    assert wrong.problems == problems
    assert str(wrong) == "a.b=1: is wrong\nc: too"
    signal = again(Interrupted("a signal", exit_code=75))
    assert (type(signal), signal.exit_code, str(signal)) == (Interrupted, 75, "a signal")
    host = again(HostUnready("old", "auth", "no key", "add one"))
    assert isinstance(host, HostUnready)
    assert (host.host, host.kind, host.remedy, str(host)) == ("old", "auth", "add one", "old: no key; add one")
    told = Skipped("finished before", folder="/runs/0")
    told.is_told = True
    skipped = again(told)
    assert isinstance(skipped, Skipped)
    assert (skipped.folder, skipped.is_told) == ("/runs/0", True)


def test_only_where_the_devices_alone_are_wrong_the_rig_is_to_blame() -> None:
    devices = Problem(key="elche.mode", constraint="NCCL needs GPUs", is_rigs=True)
    assert ConfigError([devices]).is_rigs
    assert not ConfigError([devices, Problem(key="a", constraint="is wrong")]).is_rigs
    assert not ConfigError([]).is_rigs
