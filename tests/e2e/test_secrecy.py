"""What a run shows to others: no key in any process listing, no open address, no way in without a key."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from flodl.decide.messages import FormGroup, GroupFormed, RankReady
from flodl.engine.keys import make_keys
from flodl.engine.link import RankLink
from flodl.errors import NotReady
from tests.e2e.command import LONG, command, listening
from tests.engine.live import RUN, children, cmdline, live, payloads, refusal

ANYWHERE = {"00000000", "0" * 32}
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def environment(pid: int) -> bytes:
    """As /proc shows it; of a process that has ended nothing."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_no_process_listing_holds_a_key() -> None:
    with live(2) as run:
        run.until(RankReady, 2)
        pids = [os.getpid(), *children(os.getpid())]
        seen = b"".join(cmdline(pid) + environment(pid) for pid in pids)
        seen += subprocess.run(["ps", "auxewww"], capture_output=True, check=True).stdout
        assert b"flodl.engine.agent" in seen
        pairs = [run.keys.server, *run.keys.by_rank.values()]
        for key in (text for pair in pairs for text in (pair.secret, pair.public)):
            assert key not in seen
            assert key[5:25] not in seen


def test_nothing_listens_on_every_address_while_four_ranks_average() -> None:
    with live(4) as run:
        run.until(RankReady, 4)
        ranks = (0, 1, 2, 3)
        run.world.execute(FormGroup(to=ranks, generation=1, ranks=ranks, reason="a test"))
        run.until(GroupFormed, 4)
        open_ = listening([os.getpid(), *children(os.getpid())])
    assert open_, "the test looked at nothing"
    assert not ANYWHERE & open_.keys()
    assert open_.keys() <= LOOPBACK


def test_the_whole_command_listens_on_loopback_alone_and_its_controller_loads_no_torch(tmp_path: Path) -> None:
    with command(tmp_path, *LONG) as run:
        run.trains()
        loaded = Path(f"/proc/{run.process.pid}/maps").read_text()
        assert "libzmq" in loaded
        assert "libtorch" not in loaded
        assert "libcuda" not in loaded
        assert "libtorch" in Path(f"/proc/{run.rank(0)}/maps").read_text()
        open_ = listening([run.process.pid, *run.family])
        assert len(open_["0100007F"]) >= 2
        assert open_.keys() <= LOOPBACK


def test_only_the_keys_of_this_run_open_the_door() -> None:
    last_run = make_keys(range(2))
    with live(2) as run:
        run.until(RankReady, 2)
        mine = payloads(run.world, run.keys, 2, "obedient")[0]
        for keys in (last_run.by_rank[0], make_keys([0]).by_rank[0]):
            with pytest.raises(NotReady, match="does not know this rank's key"):
                RankLink.dial(msgspec.structs.replace(mine, keys=keys))
        wrong_server = msgspec.structs.replace(mine, server_key=last_run.server.public)
        assert "wrong controller key" in refusal(wrong_server, "wrong controller key")
        link = RankLink.dial(mine)
        assert link.flush(5.0)
        link.close()
        end, strangers = time.monotonic() + 5.0, 0
        while (strangers := run.world.server.strangers()) < 3:  # the server's own monitor tells it a moment later
            assert time.monotonic() < end, f"{strangers} were counted"
            time.sleep(0.01)


def test_strangers_cost_a_run_nothing() -> None:
    with live(1) as run:
        run.until(RankReady)
        control = run.world.endpoints.control.removeprefix("tcp://").split(":")
        noise = [b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" + bytes(9) + b"\x7f", b""]
        sockets = [socket.create_connection((control[0], int(control[1]))) for _ in range(200)]
        for number, stranger in enumerate(sockets):
            stranger.sendall(noise[number % len(noise)])
        link = RankLink.dial(payloads(run.world, run.keys, 1, "obedient")[0])
        assert link.flush(5.0)
        link.close()
        for stranger in sockets:
            stranger.close()
        assert run.world.next_event(0.2) is None
        assert run.world.server.dropped_frames == 0


def test_payloads_and_keys_do_not_show_themselves() -> None:
    with live(1) as run:
        payload = payloads(run.world, run.keys, 1, "obedient")[0]
        said = f"{payload} {payload!r} {payload.keys!r} {run.keys!r}"
        assert run.keys.by_rank[0].secret.decode() not in said
        assert RUN in said
