"""Which environment variables a config may set, and which only flodl does. Names only: values of secrets never
enter a config, they travel over standard input by the names in ``env_pass``. Nor do passwords in addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from flodl.errors import Problem

__all__ = [
    "THREADS",
    "address_problems",
    "env_clashes",
    "env_pass_problems",
    "env_problems",
    "looks_secret",
    "secret_problems",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?\d*(_|$)", re.IGNORECASE)
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_USER_AND_PASSWORD = re.compile(r"://[^\s/?#]*:[^\s/?#]+@")
_ASSIGNED = re.compile(r"[?&;]([^=&;\s]+)=[^&;\s]")

# What flodl sets for each rank, and the key that governs it.
_RESERVED = {
    "CUDA_VISIBLE_DEVICES": "devices are named by local_devices",
    "CUDA_DEVICE_ORDER": "it is always PCI_BUS_ID",
    "NCCL_SOCKET_IFNAME": "use nccl_socket_ifname",
    "GLOO_SOCKET_IFNAME": "use nccl_socket_ifname",
    "RANK": "ranks are counted in the order of the hosts",
    "LOCAL_RANK": "ranks are counted in the order of the hosts",
    "WORLD_SIZE": "ranks are counted in the order of the hosts",
    "MKL_NUM_THREADS": "OMP_NUM_THREADS in env counts for all of them",
    "OPENBLAS_NUM_THREADS": "OMP_NUM_THREADS in env counts for all of them",
}
THREADS = "OMP_NUM_THREADS"  # of each rank of a host, in place of its part of the cores
_READ_AT_THE_START = ("LD_", "PYTHON")
_RESERVED_PREFIXES = {"FLODL_": "names that begin so are flodl's own", "MASTER_": "use controller.host and .port"}


def looks_secret(name: str) -> bool:
    """True for names that usually hold a secret: WANDB_API_KEY, HF_TOKEN; not TOKENIZERS_PARALLELISM."""
    return _SECRET.search(name) is not None


def address_problems(node: object, key: str = "") -> Iterator[Problem]:
    """Addresses in a tree that hold a password: postgresql://me:secret@host/db, https://host/?token=secret."""
    if isinstance(node, Mapping):
        for name, value in cast("Mapping[str, object]", node).items():
            yield from address_problems(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for i, value in enumerate(cast("list[object]", node)):
            yield from address_problems(value, f"{key}[{i}]")
    elif isinstance(node, str) and _holds_password(node):  # it is not shown
        yield Problem(key=key, constraint="is an address that holds a password, and a config is written to files",
                      remedy="leave it out of the address and give it to the service in its own way: a variable of "
                      "the environment (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, PGPASSWORD) or a "
                      "file (~/.pgpass, ~/.netrc)")  # fmt: skip


def secret_problems(tree: Mapping[str, object]) -> Iterator[Problem]:
    """Everything in a tree, as it was composed and before anything else of it was looked at, that must reach no file:
    passwords in addresses, and variables of the cluster's hosts that look like secrets."""
    yield from address_problems(tree)
    cluster = _mapping(tree.get("cluster"))
    workers = cluster.get("workers")
    hosts = cast("list[object]", workers) if isinstance(workers, list) else []
    named = [("cluster", cluster), *((f"cluster.workers[{i}]", _mapping(host)) for i, host in enumerate(hosts))]
    for key, holder in named:
        yield from (_secret(f"{key}.env", name) for name in _mapping(holder.get("env")) if looks_secret(name))


def env_problems(env: Mapping[str, str], key: str) -> Iterator[Problem]:
    """What is wrong with variables that a config sets."""
    for name, value in env.items():
        yield from _name_problems(name, f"{key}.{name}", "")
        if "\0" in value:
            yield Problem(key=f"{key}.{name}", constraint="holds a NUL byte", remedy="no variable can")
        if looks_secret(name):
            yield _secret(key, name)
        if name == THREADS and not (value.isascii() and value.isdecimal() and int(value) > 0):
            yield Problem(key=f"{key}.{name}", value=value, constraint="must be a whole number >= 1",
                          remedy="threads of each rank")  # fmt: skip


def env_pass_problems(names: Iterable[str], key: str) -> Iterator[Problem]:
    """What is wrong with names of variables that travel from the controller to the ranks."""
    for i, name in enumerate(names):
        yield from _name_problems(name, f"{key}[{i}]", name)
        if name.startswith(_READ_AT_THE_START) or name == THREADS:
            yield Problem(key=f"{key}[{i}]", value=name, constraint="is read when an interpreter starts, and passed "
                          "values arrive later", remedy="it is no secret: write it under env")  # fmt: skip


def env_clashes(passed: Iterable[str], env: Mapping[str, str], key: str) -> Iterator[Problem]:
    """Variables that a config both sets and passes on: one of the two would be ignored."""
    for name in sorted(set(passed) & env.keys()):
        if any(_name_problems(name, key, name)):  # told already, and by its cause
            continue
        yield Problem(key=f"{key}.{name}", constraint="is in cluster.env_pass too", remedy="keep one of the two")


def _secret(key: str, name: str) -> Problem:
    """The value is not shown: it may be one."""
    return Problem(key=f"{key}.{name}", constraint="looks like a secret, and a config is written to files",
                   remedy=f"export it and name it: cluster.env_pass=[{name}]")  # fmt: skip


def _mapping(node: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", node) if isinstance(node, Mapping) else {}


def _holds_password(text: str) -> bool:
    return any(
        _USER_AND_PASSWORD.search(address) or any(map(looks_secret, _ASSIGNED.findall(address)))
        for address in _ADDRESS.findall(text)
    )


def _name_problems(name: str, key: str, value: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield Problem(key=key, value=value, constraint="is no name of a variable",
                      remedy="letters, digits and underscores, no digit first")  # fmt: skip
    reserved = _RESERVED.get(name) or next((w for p, w in _RESERVED_PREFIXES.items() if name.startswith(p)), None)
    if reserved:
        yield Problem(key=key, value=value, constraint="is set by flodl for each rank", remedy=reserved)
