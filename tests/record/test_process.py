"""A process is known by more than its number: a number that was given away again names nobody of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec

from flodl.record.process import ProcessName, is_known_here, lives, send, this_process

NAME = "from flodl.record.process import this_process; import msgspec; "
SLEEPER = NAME + "print(msgspec.json.encode(this_process()).decode(), flush=True); import time; time.sleep(60)"


def sleeper() -> tuple[subprocess.Popen[str], ProcessName]:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, msgspec.json.decode(process.stdout.readline(), type=ProcessName)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=10)


def test_this_process_lives_and_is_known_here() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me.start_ticks > 0
    assert is_known_here(me)
    assert lives(me)


def test_another_process_of_the_same_number_is_not_it() -> None:
    process, name = sleeper()
    try:
        later = msgspec.structs.replace(name, start_ticks=name.start_ticks + 1)
        assert lives(name)
        assert not lives(later)
        assert not send(later, signal.SIGKILL)
        assert process.poll() is None
        assert send(name, signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert not lives(name)
        assert not send(name, signal.SIGTERM)
    finally:
        end(process)


def test_a_zombie_does_not_live() -> None:
    process, name = sleeper()
    try:
        assert send(name, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has collected it
        assert not lives(name)
    finally:
        end(process)


def test_a_process_of_another_machine_or_boot_is_neither_known_nor_touched() -> None:
    me = this_process()
    for other in (msgspec.structs.replace(me, boot="another"), msgspec.structs.replace(me, namespace="pid:[1]")):
        assert not is_known_here(other)
        assert not lives(other)
        assert not send(other, signal.SIGKILL)
