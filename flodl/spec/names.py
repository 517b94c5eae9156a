"""Names and folders that a person writes into a cluster file: which of them reach a host byte for byte.

Most characters do, blanks, quotes and ``$(...)`` included: nothing here ever passes through a shell unquoted. Refused
is what no host, user or interface is called, and what would be read as something else on the way: an option (a leading
dash), a second line, or a command in somebody's ~/.ssh/config (``ProxyCommand ... %h %r`` goes through a shell).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator

from flodl.errors import Problem

__all__ = [
    "address_fault",
    "environment_fault",
    "faults",
    "figure_fault",
    "file_fault",
    "folder_fault",
    "host_fault",
    "interface_fault",
    "jump_fault",
    "run_name_fault",
    "service_fault",
    "user_fault",
]

Fault = tuple[str, str]  # what is wrong, remedy

_HOST = re.compile(r"[\w.:%][\w.:%-]*")  # names, IPv4, IPv6 with a zone
_USER = re.compile(r"[\w.][\w.@+\\-]*\$?")
_JUMP = re.compile(rf"({_USER.pattern}@)?(\[[\w.:%]+\]|[\w.%][\w.%-]*)(:\d{{1,5}})?")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+-]{0,14}")  # Linux: 15 bytes at most
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_EVERYWHERE = ("0.0.0.0", "::", "*")
LONGEST_RUN_NAME = 200
LONGEST_FIGURE_NAME = 100
LONGEST_QUOTED = 120  # of a name that is none


def faults(key: str, value: str | None, judge: Callable[[str], Fault | None]) -> Iterator[Problem]:
    """The problem that `judge` finds with the value of a key; none where there is no value."""
    fault = None if value is None else judge(value)
    if fault is not None:
        shown = value if value and value.isprintable() else repr(value)
        yield Problem(key=key, value=shown, constraint=fault[0], remedy=fault[1])


def host_fault(text: str) -> Fault | None:
    """What is wrong with a host's label, or with a name that is dialled."""
    if _HOST.fullmatch(text):
        return None
    if "@" in text:
        return "is no name of a host", "put the user into ssh.user"
    return "is no name of a host", "a name or an address without blanks, for example node-a"


def address_fault(text: str) -> Fault | None:
    """What is wrong with an address of the controller: one that hosts can dial, and only it is listened on."""
    if text in _EVERYWHERE:
        return "is every interface at once", "name one address, for example 192.168.122.1; nothing listens on all"
    return host_fault(text)


def user_fault(text: str) -> Fault | None:
    """What is wrong with a login name."""
    return None if _USER.fullmatch(text) else ("is no login name", "as `whoami` prints it on that host")


def jump_fault(text: str) -> Fault | None:
    """What is wrong with the hosts to go through."""
    if all(_JUMP.fullmatch(hop) for hop in text.split(",")):
        return None
    return "is no way to a host", "[user@]host[:port], several with a comma between them"


def service_fault(text: str) -> Fault | None:
    """What is wrong with the name of a compose service."""
    return None if _SERVICE.fullmatch(text) else ("is no service of compose", "`docker compose ps` lists them")


def interface_fault(text: str) -> Fault | None:
    """What is wrong with the name of a network interface. NCCL would read ^, = and commas as rules of its own."""
    if _INTERFACE.fullmatch(text) and not _is_address(text):
        return None
    remedy = "one name as `ip -br addr` lists it" + (", without @ and what follows" if "@" in text else "")
    return "is no name of a network interface", remedy


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def folder_fault(text: str) -> Fault | None:
    """What is wrong with a folder or program on a host."""
    if not text.startswith("/"):
        return "must be an absolute path", f"write it in full: /{text.lstrip('~./') or 'srv/me/project'}"
    return file_fault(text)


def file_fault(text: str) -> Fault | None:
    """What is wrong with a file or folder of the machine where the command is given."""
    if not text:
        return "is empty", "leave the key out, or write null"
    control = _CONTROL.search(text)
    return (f"holds the control character {control[0]!r}", "rename the folder or file") if control else None


def environment_fault(text: str) -> Fault | None:
    """What is wrong with `arch`: the name of an environment below <path>/envs."""
    if text.startswith("/") or ".." in text.split("/"):
        return "must name a folder below <path>/envs", "or give the interpreter as python: /absolute/path"
    return file_fault(text)


def run_name_fault(text: str) -> Fault | None:
    """What is wrong with the name of a run. It is shown, stored and sent as it is; no path is made of it."""
    if not text:
        return "is empty", "leave it out to be called run"
    if not text.isprintable():
        return "holds characters that are not shown", "use one line of letters, digits, blanks and signs"
    if len(text) > LONGEST_RUN_NAME:
        return f"has {len(text)} characters", f"use {LONGEST_RUN_NAME} or less"
    return None


def figure_fault(name: object) -> str:
    """What is wrong with the name of a figure, of training or of an evaluation; "" for nothing."""
    if isinstance(name, str) and 0 < len(name) <= LONGEST_FIGURE_NAME and name.isprintable():
        return ""
    quoted = ascii(name)
    quoted = quoted if len(quoted) <= LONGEST_QUOTED else f"{quoted[:LONGEST_QUOTED]}..."
    return f"the name {quoted} must be text of 1 to {LONGEST_FIGURE_NAME} characters, all of them such as are shown"
