"""Real worker functions for process tests: small, but over the real link. Named in a payload's `entry`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from flodl.decide.messages import Cut, Finish, FormGroup, Goodbye, GroupFormed, RankReady
from flodl.decide.timeouts import timeouts_of
from flodl.engine.link import RankLink
from flodl.engine.payload import RankPayload

# It is heard often, and bears what the controller's own beats (one a second, where a test asks for nothing else) may be
# late by on a busy machine: a rank that is declared dead is told so.
LIMITS = msgspec.structs.replace(timeouts_of(0.05), dead=30.0)


def ready(payload: RankPayload) -> RankReady:
    """A plausible first event."""
    return RankReady(
        at=0.0,
        rank=payload.rank,
        host=payload.host,
        device=payload.device,
        num_samples=1000,
        data_signature="d",
        fingerprint="f",
        num_parameters=10,
        batch_size=8,
        versions={"pid": str(os.getpid())},
        incarnation=payload.incarnation,
    )


def obedient(payload: RankPayload) -> None:
    """Greets, waits for orders, leaves on Finish. On FormGroup it forms a real gloo group and adds the ranks up."""
    sys.stdout.write(f"hello from rank {payload.rank}\n")
    link = RankLink.dial(payload, limits=LIMITS)
    link.on_lost = lambda why: os._exit(9)
    link.send(ready(payload))
    while True:
        order = link.receive(None)
        if isinstance(order, Finish):
            link.upload([("weights.safetensors", (bytes([payload.rank]) * 3_000_000,))])
            link.send(Goodbye(at=0.0, rank=payload.rank))
            link.close()
            return
        if isinstance(order, FormGroup):
            link.send(_form(link, payload, order))
        if isinstance(order, Cut):
            sys.stdout.write("cut\n")


def _form(link: RankLink, payload: RankPayload, order: FormGroup) -> GroupFormed:
    import torch

    from flodl.engine.groups import gloo_group

    begun = time.perf_counter()
    make = gloo_group("lo", timeout_seconds=20.0)
    group = make(link.store(order.generation), order.ranks.index(payload.rank), len(order.ranks))
    total = torch.tensor([float(payload.rank + 1)])
    group.allreduce([total]).wait()
    formed_ms = (time.perf_counter() - begun) * 1000
    return GroupFormed(
        at=0.0, rank=payload.rank, generation=order.generation, last_round=0, digest=f"{total.item():g} {formed_ms:.1f}"
    )


def mute(payload: RankPayload) -> None:
    """Never says a word."""
    sys.stdout.write("building something for ever\n")
    time.sleep(600)


def silent_exit(payload: RankPayload) -> None:
    """Leaves without a goodbye, code 0."""
    link = RankLink.dial(payload)
    link.send(ready(payload))
    link.close()


def raises(payload: RankPayload) -> None:
    """The user's code is broken."""
    raise RuntimeError(f"broken on rank {payload.rank}")


def noisy(payload: RankPayload) -> None:
    """Output of every hostile kind, then a segfault's exit."""
    os.write(1, b"plain\n\xff\xfe not utf-8\n\x1b[31mred\x1b[0m\n" + b"x" * 40_000 + b"\nno newline")
    sys.stderr.write("to stderr\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def stubborn(payload: RankPayload) -> None:
    """Ignores TERM and has a child that does too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(600)
    link = RankLink.dial(payload)
    link.send(ready(payload))
    time.sleep(600)


def questions(payload: RankPayload) -> None:
    """Everything that a process group asks of its store, from several threads at once; then the obedient life."""
    from datetime import timedelta

    import pytest
    from torch.distributed import DistStoreError

    link = RankLink.dial(payload)
    store = link.store(1)
    if payload.rank == 0:
        assert not store.check(["late"])
        store.set("late", "value")
        assert store.compare_set("swap", "", "first") == b"first"
        assert store.compare_set("swap", "first", "second") == b"second"
        store.append("list", "a")
        store.append("list", "b")
        assert store.get("list") == b"ab"
    assert store.get("late") == b"value"
    store.wait(["swap", "list"], timedelta(seconds=10))
    threads = [threading.Thread(target=lambda: [store.add("count", 1) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.add("done", 1)
    while store.add("done", 0) < len(payload.world):
        time.sleep(0.01)
    assert store.add("count", 0) == 200 * len(payload.world)
    assert link.store(2).num_keys() == 0
    begun = time.monotonic()
    with pytest.raises(DistStoreError, match="timed out: g1/never"):
        store.wait(["never"], timedelta(seconds=0.3))
    assert time.monotonic() - begun < 3.0
    link.close()
    obedient(payload)


def waits_for_nobody(payload: RankPayload) -> None:
    """Hangs in a store of generation 1 until that is superseded, and says how that ended."""
    from torch.distributed import DistStoreError

    link = RankLink.dial(payload)
    link.send(ready(payload))
    try:
        link.store(1).get("never")
    except DistStoreError as error:
        sys.stdout.write(f"{error}\n")
    link.send(Goodbye(at=0.0, rank=payload.rank))
    link.close()


def tells_its_place(payload: RankPayload) -> None:
    """What the rank's surroundings are, in its `versions`."""
    import torch

    seen = {
        "cwd": str(Path.cwd()),
        "path": sys.path[0],
        "threads": str(torch.get_num_threads()),
        "session": str(os.getsid(0)),
        "pid": str(os.getpid()),
        "tasks": str(len(list(Path("/proc/self/task").iterdir()))),
        "stdin": str(sys.stdin.buffer.read()),
        **{name: os.environ.get(name, "-") for name in PLACES},
    }
    elsewhere = threading.Thread(target=lambda: seen.update(elsewhere=str(torch.get_num_threads())))
    elsewhere.start()
    elsewhere.join()
    link = RankLink.dial(payload)
    link.send(msgspec.structs.replace(ready(payload), versions=seen))
    link.receive(None)


PLACES = (
    "A_TEST_SECRET",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OF_THE_HOST",
)
