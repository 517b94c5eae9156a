"""Real worker functions for process tests: small, but over the real link. Named in a payload's `entry`."""

from __future__ import annotations

import os
import signal
import sys
import time

from flodl.decide.messages import Cut, Finish, FormGroup, Goodbye, GroupFormed, RankReady
from flodl.engine.link import RankLink
from flodl.engine.payload import RankPayload


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
    )


def obedient(payload: RankPayload) -> None:
    """Greets, waits for orders, leaves on Finish. On FormGroup it forms a real gloo group and adds the ranks up."""
    sys.stdout.write(f"hello from rank {payload.rank}\n")
    link = RankLink.dial(payload)
    link.send(ready(payload))
    while True:
        order = link.receive(None)
        if isinstance(order, Finish):
            link.upload("weights.safetensors", bytes([payload.rank]) * 3_000_000)
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
