"""Command lines for hosts, as pure functions: every word that the user chose is quoted here and nowhere else.

A line for a host is read by whatever login shell its user has, and sh, bash, zsh, csh and fish do not agree on quotes.
So the login shell gets one quoted word for /bin/sh, spelled in characters that all of them leave alone. The line says
a word of its own before it begins: what comes earlier is login noise, and a shell that ends before never came to us.
"""

from __future__ import annotations

import os
import shlex
import string
import sys
from collections.abc import Sequence

from flodl.ports import HostCall

__all__ = ["AGENT", "agent_argv", "begun_word", "docker_argv", "kill_line", "line_for_shell", "plain_fault"]

AGENT = "flodl.engine.agent"
SAFE = frozenset(string.ascii_letters + string.digits + " ./:,=+-@%")
# sshd, the parent, goes with the line, and nobody tells the program. The watch is no child of the program, which may
# await all that it has.
WATCH = (
    "test -d /proc/$PPID && (while kill -0 $$; do "
    "test -d /proc/$PPID || { kill -KILL -$$ || kill -KILL $$; }; sleep 1; "
    "done < /dev/null > /dev/null 2>&1 &); "
)
PLAIN = frozenset(string.ascii_letters + string.digits + string.punctuation + " ") - set("\\!")


def agent_argv(call: HostCall, marker: str) -> list[str]:
    """What runs on the host, or in its container."""
    return docker_argv(call.spec.docker, [call.python or sys.executable, "-P", "-m", AGENT, marker])


def docker_argv(service: str | None, argv: Sequence[str]) -> list[str]:
    """The same in a compose service, where there is one. -T: no terminal, the streams stay binary."""
    return ["docker", "compose", "exec", "-T", service, *argv] if service is not None else list(argv)


def begun_word(marker: str) -> str:
    """What the line says first; its process's number and start time follow."""
    return f"{marker}.shell"


def line_for_shell(argv: Sequence[str], marker: str, folder: str = "", *, is_watched: bool = False) -> str:
    """One line for a login shell: say that it was reached, go to the folder if it is there, become the program.

    is_watched: the program is ended where the line is lost; for programs that would not notice.
    """
    go = f"test -d {_word(folder)} && cd {_word(folder)}; " if folder else ""
    watch = WATCH if is_watched else ""
    return _for_any_shell(f"echo {begun_word(marker)} $$ $({_start_time('$$')}); {watch}{go}exec {shlex.join(argv)}")


def kill_line(pid: int, start_time: int) -> str:
    """One line that ends the program of another, with its process group where it leads one; nobody else's."""
    kill = f"{{ kill -KILL -{pid} || kill -KILL {pid}; }} 2> /dev/null"
    return _for_any_shell(f'test "$({_start_time(pid)})" = {start_time} && {kill}')


def _start_time(pid: int | str) -> str:
    return f"sed 's/.*) //' /proc/{pid}/stat 2> /dev/null | cut -d ' ' -f 20"


def _word(path: str) -> str:
    """A path that no program takes for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def _for_any_shell(script: str) -> str:
    """A script of /bin/sh as one command. Where it holds what some shell reads even between single quotes (backslash
    in fish, ! and line breaks in csh), every odd character travels as _0ooo and is restored by sh."""
    if set(script) <= PLAIN:
        return f"exec /bin/sh -c {shlex.quote(script)}"
    spelled = "".join(chr(byte) if chr(byte) in SAFE else f"_0{byte:03o}" for byte in os.fsencode(script))
    return f"""exec /bin/sh -c 'eval "$(printf %b "$(printf %s "$0" | tr _ "\\134")")"' '{spelled}'"""


def plain_fault(text: str) -> str:
    """Why a name cannot be a host or a user, which programs take as one word; "" where it can."""
    if not text:
        return "is empty"
    if text.startswith("-"):
        return "begins with a dash, which reads as an option"
    if not text.isprintable() or any(c.isspace() for c in text):
        return "holds blanks or control characters"
    return ""
