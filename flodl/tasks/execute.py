"""task=exec: any command on all hosts, each line with its host before it."""

from __future__ import annotations

import shlex
import sys

from flodl.errors import ConfigError, Problem, TaskFindings
from flodl.tasks.hosts import Host, each, hosts_of
from flodl.tasks.order import Order

__all__ = ["perform", "plan"]


def perform(order: Order) -> None:
    """Run it everywhere, side by side. Raises TaskFindings where it ends with anything but 0."""
    argv = _argv(order.given["command"])

    def run(host: Host) -> None:
        code = host.run(argv)
        if code != 0:
            raise TaskFindings(f"{host.label}: {shlex.join(argv)} ended with {code}")

    each(hosts_of(order.job), run)


def plan(order: Order) -> None:
    """launch.dry_run: what would be run, and where."""
    command = shlex.join(_argv(order.given["command"]))
    sys.stdout.write("".join(f"[{host.host}] {command}\n" for host in order.job.cluster.workers))


def _argv(command: object) -> list[str]:
    """Text is a line for sh; a list is a program and its arguments, as they are."""
    if isinstance(command, str) and command.strip():
        return ["sh", "-c", command]
    if isinstance(command, list) and command and all(isinstance(word, str | int | float) for word in command):
        return [str(word) for word in command]
    raise ConfigError([Problem(key="command", value=str(command), constraint="is no command",
                               remedy="command='nvidia-smi', or a list of words: command=[ls,-l]")])  # fmt: skip
