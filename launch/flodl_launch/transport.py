"""The transport that conf/launch names: one agent on one host, over SSH or in a container, as three streams.

`open_streams` returns when the agent has begun, so what went wrong before that is told apart here: a login, a login
shell that ends, an interpreter that is not there, a flodl that is not in it.
"""

from __future__ import annotations

from flodl.ports import HostCall
from flodl_launch.beginning import AgentStreams, await_agent
from flodl_launch.command import agent_argv, line_for_shell
from flodl_launch.docker import open_process
from flodl_launch.ssh import log_in
from flodl_launch.streams import SshStreams

__all__ = ["open_streams"]


def open_streams(call: HostCall, marker: str) -> AgentStreams:
    """Start the agent of a host. May be called from several threads at once. Raises HostUnready."""
    argv = agent_argv(call, marker)
    if call.here:
        return await_agent(call, open_process(call, argv), marker)
    folder = call.path if call.spec.docker is not None else ""  # that is where the compose file lies
    streams = SshStreams.start(call, log_in(call), line_for_shell(argv, marker, folder))
    return await_agent(call, streams, marker)
