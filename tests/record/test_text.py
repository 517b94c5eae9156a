"""Foreign text cannot move a cursor, hide itself or break a file."""

from __future__ import annotations

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hypothesis import assume, given
from hypothesis import strategies as st

from flodl.record.text import clean, hydra_text, is_serious, plain_name, typed


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[Hhome", "home"),
        ("\x1b(Bcharset", "charset"),
        ("bell\x07, null\x00, C1 \x9b31m", "bell, null, C1 31m"),
        ("  0%|   |\r 50%|#  |\r100%|###|", "100%|###|"),
        ("tab\tstays", "tab\tstays"),
        ("windows\r\n", "windows"),
        ("[bold]no markup of ours[/bold]", "[bold]no markup of ours[/bold]"),
        ("right-to-left \u202eevil", "right-to-left evil"),
        (b"caf\xc3\xa9 \xff\xfe", "café \\xff\\xfe"),
        ("lone \udcff surrogate", "lone \\udcff surrogate"),
        ("an unfinished escape \x1b[3", "an unfinished escape 3"),
    ],
)
def test_what_is_left_of_a_line(given_: str | bytes, expected: str) -> None:
    assert clean(given_) == expected


@given(st.binary(max_size=200))
def test_any_bytes_become_one_printable_line(data: bytes) -> None:
    text = clean(data)
    assert "\x1b" not in text
    assert "\n" not in text
    text.encode("utf-8")
    assert clean(text) == text


@pytest.mark.parametrize(
    "line", ["WARNING: low memory", "RuntimeError: shape", "UserWarning: x", "Traceback (most recent call last):"]
)
def test_warnings_and_worse_are_serious(line: str) -> None:
    assert is_serious(line)


@pytest.mark.parametrize("line", ["epoch 3 done", "0 failed", "terrors of the deep"])
def test_the_everyday_is_not_serious(line: str) -> None:
    assert not is_serious(line)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("node-a", "node-a"),
        ("10.0.0.7", "10.0.0.7"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("me@old box", "me%40old%20box"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("fe80::1%eth0", "fe80%3A%3A1%25eth0"),
    ],
)
def test_a_label_becomes_a_file_name(label: str, expected: str) -> None:
    assert plain_name(label) == expected


@given(st.text(max_size=30), st.text(max_size=30))
def test_two_labels_never_share_a_file_name(one: str, other: str) -> None:
    if one and other and one != other and not any("\ud800" <= c <= "\udfff" for c in one + other):
        assert plain_name(one) != plain_name(other)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.builds(dict),
    lambda inside: st.lists(inside, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_a_value_that_is_typed_is_read_back_by_hydra_as_it_was(value: object) -> None:
    assume("${" not in str(value))  # which no job holds
    assert shlex.split(typed("key", value)) == [f"key={hydra_text(value)}"]
    read = OverridesParser.create().parse_override(f"key={hydra_text(value)}")
    assert not read.is_sweep_override()
    assert plain(read.value()) == value


def plain(read: object) -> object:
    """Without Hydra's marks of what was quoted."""
    if isinstance(read, QuotedString):
        return read.text
    if isinstance(read, dict):
        return {name: plain(part) for name, part in read.items()}
    return [plain(part) for part in read] if isinstance(read, list) else read
