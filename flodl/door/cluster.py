"""A cluster file, written in Python: the methods are the file's keys, and what comes of it is the same value.

Ranks are counted in the order of the hosts, as in a file. docs/clusters.md says what each key is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from flodl.errors import ConfigError, Problem
from flodl.spec.cluster import ClusterSpec, HostOverrides
from flodl.spec.codec import value_to_plain
from flodl.spec.devices import named_count
from flodl.spec.reader import Reader

__all__ = ["ClusterBuilder"]

Push = Literal["none", "rsync"]


@dataclass(frozen=True)
class ClusterBuilder:
    """Controller and hosts. Every method answers with another builder, `build` with the value.

    What follows a `host` is about that host, up to the next one::

        cluster = (
            ClusterBuilder()
            .controller("192.168.1.10", port=29400)
            .host("here").devices(0).nccl_socket_ifname("eth0")
            .host("old").all_devices().nccl_socket_ifname("eth0").path("/srv/me/project").arch("cu126")
            .build()
        )
    """

    _controller: tuple[tuple[str, Any], ...] = ()
    _cluster: tuple[tuple[str, Any], ...] = ()
    _hosts: tuple[tuple[tuple[str, Any], ...], ...] = ()
    _ranks: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def all_local_gpus(cls) -> ClusterBuilder:
        """This machine and every GPU that it has; without one a start is refused."""
        return cls().host("localhost").all_devices()

    def build(self) -> ClusterSpec:
        """The value. Raises ConfigError with everything that is wrong, each with its key as in a file."""
        reader = Reader()
        found = reader.value(ClusterSpec, self._tree(), "cluster")
        problems = [*reader.problems, *self._misnumbered()]
        if problems:
            raise ConfigError(problems)
        assert isinstance(found, ClusterSpec)
        return found

    # -------------------------------------------------------------------------------------------------- the whole

    def controller(
        self, host: str, *, port: int = 0, bind: str | None = None, data_path: str | None = None
    ) -> ClusterBuilder:
        """host: this machine's address as the others see it. port: control, and the next one for bulk; 0: two free."""
        said = {"host": host, "port": port, "bind": bind, "data_path": data_path}
        return replace(self, _controller=(*self._controller, *said.items()))

    def join(self, *, min_ranks: int | None = None, timeout_seconds: float = 300.0) -> ClusterBuilder:
        """How long ranks are waited for, and with how many a run may begin (None: all)."""
        said = {"min_ranks": min_ranks, "timeout_seconds": timeout_seconds}
        return replace(self, _controller=(*self._controller, ("join", said)))

    def env_pass(self, *names: str) -> ClusterBuilder:
        """Variables whose values are taken from this process; they appear in no file and no listing."""
        return replace(self, _cluster=(*self._cluster, ("env_pass", list(names))))

    def deploy(
        self, *, code: Literal["none", "rsync"] = "none", data: Literal["none", "rsync"] = "none"
    ) -> ClusterBuilder:
        """What is pushed to the hosts before a run."""
        return replace(self, _cluster=(*self._cluster, ("deploy", {"code": code, "data": data})))

    # --------------------------------------------------------------------------------------------------- one host

    def host(self, label: str) -> ClusterBuilder:
        """One host more: its label, which is the SSH target unless `ssh_target` says another."""
        return replace(self, _hosts=(*self._hosts, (("host", label),)))

    def devices(self, *gpus: int) -> ClusterBuilder:
        """These GPUs, as nvidia-smi counts."""
        return self._says("local_devices", list(gpus))

    def cpu_ranks(self, number: int) -> ClusterBuilder:
        """So many ranks on the CPU."""
        return self._says("local_devices", f"cpu:{number}")

    def all_devices(self) -> ClusterBuilder:
        """Every GPU of the host; counted when the run starts."""
        return self._says("local_devices", "all")

    def ranks(self, numbers: Sequence[int]) -> ClusterBuilder:
        """The host's ranks, written down as a check: they must be those that are counted."""
        at, said = max(0, len(self._hosts) - 1), tuple(numbers) if isinstance(numbers, Iterable) else (numbers,)
        return replace(self, _ranks=(*self._ranks, (at, said)))

    def nccl_socket_ifname(self, interface: str) -> ClusterBuilder:
        """The network interface of NCCL and gloo; needed on each of several hosts."""
        return self._says("nccl_socket_ifname", interface)

    def path(self, folder: str) -> ClusterBuilder:
        """The project's folder there, absolute."""
        return self._says("path", folder)

    def arch(self, environment: str) -> ClusterBuilder:
        """The environment <path>/envs/<arch>."""
        return self._says("arch", environment)

    def python(self, interpreter: str) -> ClusterBuilder:
        """An absolute interpreter, which wins over arch."""
        return self._says("python", interpreter)

    def data_path(self, folder: str) -> ClusterBuilder:
        """Where data sets lie there: ``@data``."""
        return self._says("data_path", folder)

    def docker(self, service: str) -> ClusterBuilder:
        """A compose service to run in."""
        return self._says("docker", service)

    def speed(self, *fractions: float) -> ClusterBuilder:
        """To rehearse: part of its own speed, above 0 to 1; one for all devices, or one for each."""
        return self._says("speed", fractions[0] if len(fractions) == 1 else list(fractions))

    def overrides(self, overrides: HostOverrides) -> ClusterBuilder:
        """What differs on this host: batch size, precision and the like."""
        return self._says("overrides", value_to_plain(overrides))

    def env(self, variables: Mapping[str, str]) -> ClusterBuilder:
        """Variables of this host's ranks; before the first host: of every rank."""
        said = dict(variables) if isinstance(variables, Mapping) else variables
        if not self._hosts:
            return replace(self, _cluster=(*self._cluster, ("env", said)))
        return self._says("env", said)

    def ssh_target(self, target: str) -> ClusterBuilder:
        return self._says("ssh.target", target)

    def ssh_port(self, port: int) -> ClusterBuilder:
        return self._says("ssh.port", port)

    def ssh_user(self, user: str) -> ClusterBuilder:
        return self._says("ssh.user", user)

    def ssh_identity_file(self, path: str) -> ClusterBuilder:
        return self._says("ssh.identity_file", path)

    def ssh_proxy_jump(self, jump: str) -> ClusterBuilder:
        """[user@]host[:port] to go through."""
        return self._says("ssh.proxy_jump", jump)

    def ssh_known_hosts(self, path: str) -> ClusterBuilder:
        return self._says("ssh.known_hosts", path)

    def ssh_host_key_policy(self, policy: Literal["reject", "accept_new"]) -> ClusterBuilder:
        return self._says("ssh.host_key_policy", policy)

    # -------------------------------------------------------------------------------------------------------------

    def _says(self, key: str, value: Any) -> ClusterBuilder:
        """Something about the last host. Raises ConfigError where there is none yet."""
        if not self._hosts:
            raise ConfigError([Problem(key=f"cluster.{key}", value=str(value), constraint="is about no host yet",
                                       remedy="begin with .host(label)")])  # fmt: skip
        return replace(self, _hosts=(*self._hosts[:-1], (*self._hosts[-1], (key, value))))

    def _tree(self) -> dict[str, Any]:
        return {**dict(self._cluster), "controller": dict(self._controller), "workers": [*map(_host, self._hosts)]}

    def _misnumbered(self) -> Iterator[Problem]:
        """Ranks that were written and are not those that are counted, as far as that is known before a start."""
        first: int | None = 0
        written = dict(self._ranks)
        for at, said in enumerate(self._hosts):
            devices = dict(said).get("local_devices", "auto")
            count = named_count(tuple(devices) if isinstance(devices, list) else devices)
            ranks = written.get(at)
            if ranks is not None:
                begin = ranks[0] if first is None and ranks else first or 0
                counted = tuple(range(begin, begin + (len(ranks) if count is None else count)))
                if ranks != counted:
                    yield Problem(key=f"cluster.workers[{at}].ranks", value=str(list(ranks)),
                                  constraint=f"ranks are counted in the order of the hosts: here {list(counted)}",
                                  remedy="leave them out, or put the hosts in another order")  # fmt: skip
            first = None if count is None or first is None else first + count


def _host(said: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in said:
        if key.startswith("ssh."):
            tree.setdefault("ssh", {})[key.removeprefix("ssh.")] = value
        else:
            tree[key] = value
    return tree
