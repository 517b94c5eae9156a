"""Uploads over the real link: whole, with a digest that was compared, or refused in words; orders pass them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator

import pytest

from flodl.engine.protocol import PART_BYTES
from flodl.errors import FlodlError
from tests.engine.listening import Controller, Memory, dialled


@pytest.fixture
def controller() -> Iterator[Controller]:
    found = Controller()
    yield found
    found.server.close()


class Shelf(Controller):
    """A controller that keeps every upload by itself."""

    def __init__(self) -> None:
        self.sinks: list[Memory] = []
        super().__init__()

    def open(self, rank: int, name: str) -> Memory:
        self.sinks.append(Memory())
        return self.sinks[-1]


def test_uploads_arrive_whole_one_after_another_with_the_digest_of_what_was_sent() -> None:
    data, small = bytes(range(256)) * 80_000, 70_001  # 20 parts and a rest; a tensor: some fall on the edge of a part
    files = {
        "weights.safetensors": [data],
        "large": [memoryview(data)[i : i + PART_BYTES + 1] for i in (0, 5)],
        "small": [memoryview(data)[i : i + small] for i in range(0, len(data), small)],
    }
    controller = Shelf()
    with dialled(controller.door(0)) as link:
        link.upload(files.items())
    controller.server.close()
    sinks = controller.sinks
    whole = [b"".join(chunks) for chunks in files.values()]
    assert [bytes(sink.data) for sink in sinks] == whole
    assert [sink.committed for sink in sinks] == [hashlib.sha256(found).hexdigest() for found in whole]
    assert sinks[-1].parts == 20


def test_a_full_disk_is_told_to_the_rank_and_nothing_stays(controller: Controller) -> None:
    controller.sink = Memory(trouble="No space left on device")
    with (
        dialled(controller.door(0)) as link,
        pytest.raises(FlodlError, match=r"could not store weights.*No space left"),
    ):
        link.upload([("weights.safetensors", (b"x",)), ("another", (b"y",))])
    assert controller.sink.abandoned
    assert not controller.sink.committed


def test_orders_come_through_while_an_upload_runs(controller: Controller) -> None:
    with dialled(controller.door(0)) as link:
        done = threading.Thread(target=link.upload, args=([("w", (bytes(64 << 20),))],))
        done.start()
        waits = []
        while done.is_alive():
            begun = time.monotonic()
            assert link.flush(5.0)
            waits.append(time.monotonic() - begun)
        done.join()
    assert sorted(waits)[len(waits) // 2] < 0.2
