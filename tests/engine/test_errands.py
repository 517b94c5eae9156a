"""The agent's lines: cut where a newline is, however the bytes come, and bounded."""

from __future__ import annotations

import msgspec
import pytest

from flodl.engine.errands import LineSplitter, Said, Start, Stop, decode_order, decode_word, encode_line


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(size: int) -> None:
    data = b"one\n\ntwo two\n\xff\xfe\nlast"
    splitter, found = LineSplitter(), []
    for start in range(0, len(data), size):
        found += splitter.feed(data[start : start + size])
    assert found == [b"one", b"", b"two two", b"\xff\xfe"]
    assert splitter.rest() == [b"last"]
    assert splitter.rest() == []


def test_a_line_beyond_the_limit_comes_in_pieces() -> None:
    splitter = LineSplitter(limit_bytes=4)
    assert splitter.feed(b"abcdefghij") == [b"abcd", b"efgh"]
    assert splitter.feed(b"\nxy\n") == [b"ij", b"xy"]
    assert splitter.feed(b"0123456789\n") == [b"0123", b"4567", b"89"]


def test_frames_are_one_line_each_whatever_they_hold() -> None:
    said = Said(rank=3, text='newline \n quote " unicode größte \x1b[31m')
    line = encode_line(said)
    assert line.count(b"\n") == 1
    assert decode_word(line[:-1]) == said


def test_secrets_travel_as_bytes() -> None:
    start = Start(run=1, ranks=(0, 1), devices=("cpu", "cpu"), secret=bytes(range(256)))
    assert decode_order(encode_line(start)[:-1]) == start


@pytest.mark.parametrize("line", [b"", b"{}", b'{"type":"Stop"}', b'{"type":"Stop","grace_seconds":1,"x":2}', b"\xff"])
def test_a_malformed_order_is_an_error_and_nothing_else(line: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        decode_order(line)


def test_an_order_is_no_word() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_word(encode_line(Stop(grace_seconds=1.0))[:-1])
