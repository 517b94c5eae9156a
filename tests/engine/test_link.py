"""The link over real sockets: who gets in, what gets through, and how it is said when nothing does."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from flodl.decide.messages import Cut, Goodbye, RankFailed
from flodl.engine.keys import make_keys
from flodl.engine.link import DIAL_SECONDS, LinkClosedError, RankLink
from flodl.engine.server import LinkServer, Listen
from flodl.errors import ConfigError, NotReady
from tests.engine.listening import RUN, Controller, Door, Memory, bye, dialled
from tests.engine.live import refusal


@pytest.fixture
def controller() -> Iterator[Controller]:
    found = Controller()
    yield found
    found.server.close()


def test_events_arrive_in_order_and_orders_come_back(controller: Controller) -> None:
    with dialled(controller.door(0)) as link:
        for _ in range(3):
            link.send(bye(0))
        assert [controller.events.get(timeout=5) for _ in range(3)] == [bye(0)] * 3
        assert link.receive(0) is None
        assert not link.pending()
        for number in range(3):
            controller.server.send(0, Cut(to=(0,), reason=str(number)))
        orders = [link.receive(5.0) for _ in range(3)]
        assert [order.reason for order in orders if order is not None] == ["0", "1", "2"]


def test_an_order_for_a_rank_that_has_not_dialled_yet_waits_for_it(controller: Controller) -> None:
    controller.server.send(1, Cut(to=(1,), reason="early"))
    with dialled(controller.door(1)) as link:
        assert link.receive(5.0) == Cut(to=(1,), reason="early")


def test_pending_turns_true_without_a_receive(controller: Controller) -> None:
    with dialled(controller.door(0)) as link:
        controller.server.send(0, Cut(to=(0,), reason="x"))
        end = time.monotonic() + 5
        while not link.pending():
            assert time.monotonic() < end


def test_a_message_goes_out_while_the_training_thread_computes(controller: Controller) -> None:
    """Sending needs no other Python thread: a busy interpreter delays it by no switch interval (5 ms)."""
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
    with dialled(controller.door(0)) as link:
        busy.start()
        try:
            spent = []
            for _ in range(50):
                begun = time.thread_time()
                link.send(bye(0))
                spent.append(time.thread_time() - begun)
        finally:
            stop.set()
            busy.join()
    assert sorted(spent)[25] < 0.0005


def test_closing_flushes_so_that_a_goodbye_is_heard_before_the_exit_is_seen(controller: Controller) -> None:
    link = RankLink.dial(controller.door(0))
    for _ in range(100):
        link.send(bye(0))
    link.close()
    assert [controller.events.get_nowait() for _ in range(100)]
    with pytest.raises(LinkClosedError):
        link.send(bye(0))
    with pytest.raises(LinkClosedError):
        link.receive(1.0)
    link.close()


@pytest.mark.parametrize("whose", ["another run's", "nobody's"])
def test_an_unknown_key_is_refused_at_once_and_in_words(controller: Controller, whose: str) -> None:
    begun = time.monotonic()
    keys = make_keys(range(2)).by_rank[0] if whose == "another run's" else make_keys([9]).by_rank[9]
    with pytest.raises(NotReady, match="does not know this rank's key"):
        RankLink.dial(controller.door(0, keys=keys))
    assert time.monotonic() - begun < DIAL_SECONDS
    end = time.monotonic() + 5
    while controller.server.strangers() < 1:  # the server's own monitor tells it a moment later
        assert time.monotonic() < end
    with dialled(controller.door(0)):
        pass


def test_a_rank_that_is_ended_within_its_handshake_is_no_stranger(controller: Controller) -> None:
    host, _, port = controller.door(0).control.removeprefix("tcp://").rpartition(":")
    with dialled(controller.door(1)):
        pass
    for number in (1, 2):
        socket.create_connection((host, int(port))).close()
        end = time.monotonic() + 5
        while controller.server.strangers() < number:
            assert time.monotonic() < end
    controller.server.evict(1)
    assert controller.server.strangers() == 2, "it had been heard"
    controller.server.evict(0)
    controller.server.evict(0)
    assert controller.server.strangers() == 1


def test_whoever_is_refused_before_it_could_greet_is_told_why_as_well(controller: Controller) -> None:
    class Late(RankLink):
        def _post(self, message: Any) -> None:
            end = time.monotonic() + 5
            while controller.server.strangers() < 1 and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.1)  # until the refusal is here
            super()._post(message)

    with pytest.raises(NotReady, match="does not know this rank's key"):
        Late.dial(controller.door(0, keys=make_keys([9]).by_rank[9]))


def test_the_wrong_controller_is_noticed_by_its_key(controller: Controller) -> None:
    told = refusal(controller.door(0, server=make_keys([0]).server.public), "wrong controller key")
    assert "the handshake fails: a wrong controller key" in told


def test_another_program_on_the_port_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        keys = make_keys([0])
        door = Door(RUN, place, place, keys.server.public, keys.by_rank[0])
        assert "another program" in refusal(door, "another program")


def test_a_closed_port_is_named_as_such() -> None:
    keys = make_keys([0])
    place = "tcp://127.0.0.1:9"
    door = Door(RUN, place, place, keys.server.public, keys.by_rank[0])
    assert "nobody listens there" in refusal(door, "nobody listens there")


def raw(controller: Controller, *, curve: bool) -> zmq.Socket[bytes]:
    """A plain socket on the control port, with rank 0's keys or without any."""
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    if curve:
        dealer.setsockopt(zmq.CURVE_SERVERKEY, controller.keys.server.public)
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, controller.keys.by_rank[0].public)
        dealer.setsockopt(zmq.CURVE_SECRETKEY, controller.keys.by_rank[0].secret)
    dealer.connect(controller.server.endpoints.control)
    return dealer


def test_without_a_key_nothing_gets_in(controller: Controller) -> None:
    dealer = raw(controller, curve=False)
    dealer.send(msgspec.msgpack.encode((RUN, bye(0))))
    with pytest.raises(queue.Empty):
        controller.events.get(timeout=1.0)
    dealer.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
        msgspec.msgpack.encode((RUN, {"type": "Shutdown"})),
        msgspec.msgpack.encode((RUN, {"type": "Goodbye", "at": 0.0, "rank": 0, "extra": 1})),
        msgspec.msgpack.encode(("another run", bye(0))),
        msgspec.msgpack.encode((RUN, bye(1))),  # rank 0's key, rank 1's name
        msgspec.msgpack.encode((RUN, {"type": "RankDied", "at": 0.0, "rank": 0, "cause": "said so itself"})),
    ],
)
def test_a_malformed_or_foreign_frame_is_dropped_and_counted(controller: Controller, frame: bytes) -> None:
    dealer = raw(controller, curve=True)
    dealer.send(frame)
    end = time.monotonic() + 5
    while not controller.server.dropped_frames:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert controller.events.empty()
    dealer.send(msgspec.msgpack.encode((RUN, bye(0))))
    assert controller.events.get(timeout=5) == bye(0)
    dealer.close()


def test_a_message_beyond_the_limit_cuts_the_connection_and_costs_nobody_else(controller: Controller) -> None:
    dealer = raw(controller, curve=True)
    dealer.send(bytes(5 << 20))
    with dialled(controller.door(1)) as link:
        link.send(bye(1))
        assert controller.events.get(timeout=5) == bye(1)
    dealer.close()


def test_a_frame_of_another_run_does_not_pass_even_with_the_key(controller: Controller) -> None:
    assert "does not greet back" in refusal(controller.door(0, run="last run"), "does not greet back")


def test_nan_is_refused_where_it_would_be_sent(controller: Controller) -> None:
    with dialled(controller.door(0)) as link, pytest.raises(ValueError, match=r"Goodbye\.at"):
        link.send(Goodbye(at=float("nan"), rank=0))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "no.such.name.invalid", "203.0.113.7"])
def test_only_one_named_address_of_this_machine_is_listened_on(address: str) -> None:
    listen = Listen(address, 0, RUN, make_keys([0]))
    with pytest.raises((ConfigError, NotReady), match=r"cluster\.controller\.(bind|host)"):
        LinkServer.bind(listen, on_event=lambda event: None, open_upload=lambda rank, name: Memory())


def test_a_busy_port_names_its_holder(controller: Controller) -> None:
    port = int(controller.server.endpoints.control.rpartition(":")[2])
    listen = Listen("127.0.0.1", port, RUN, make_keys([0]))
    holder = rf"cluster\.controller\.port={port}: in use by process {os.getpid()} \(.*python"
    with pytest.raises(NotReady, match=holder):
        LinkServer.bind(listen, on_event=lambda event: None, open_upload=lambda rank, name: Memory())


def test_a_fixed_port_takes_the_next_number_for_bulk() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = LinkServer.bind(
        Listen("127.0.0.1", port, RUN, make_keys([0])),
        on_event=lambda event: None,
        open_upload=lambda rank, name: Memory(),
    )
    assert server.endpoints == (f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}")
    server.close()


def test_a_trace_with_every_byte_comes_through(controller: Controller) -> None:
    text = "".join(map(chr, range(1, 0x300))) + "größte 🙂"
    with dialled(controller.door(0)) as link:
        link.send(RankFailed(at=0.0, rank=0, kind="step", message=text, trace=text))
        heard = controller.events.get(timeout=5)
        assert isinstance(heard, RankFailed)
        assert heard.message == text


def test_keys_say_nothing_about_themselves() -> None:
    keys = make_keys([0])
    said = repr(keys) + repr(keys.server) + str(keys.by_rank) + f"{keys.server!r}"
    for pair in (keys.server, *keys.by_rank.values()):
        assert pair.secret.decode() not in said
