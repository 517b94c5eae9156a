"""The rendezvous dictionary: answers at once, or when the keys are there, or never too late."""

from __future__ import annotations

from flodl.engine.keyvalue import LIMIT_BYTES, KeyValue, Reply
from flodl.engine.protocol import Answer, Ask


def ask(op: str, *keys: str, number: int = 1, **rest: object) -> Ask:
    return Ask(id=number, op=op, keys=keys, **rest)  # type: ignore[arg-type]


def test_a_value_that_was_set_is_got() -> None:
    store = KeyValue()
    assert store.ask("a", ask("set", "k", value=b"v"), 0.0) == [Reply("a", Answer(id=1))]
    assert store.ask("b", ask("get", "k", number=7), 0.0) == [Reply("b", Answer(id=7, value=b"v"))]


def test_who_asks_too_early_is_answered_when_the_last_key_arrives() -> None:
    store = KeyValue()
    assert store.ask("early", ask("wait", "x", "y", number=3, timeout_ms=1000), 0.0) == []
    assert store.ask("other", ask("set", "x", value=b"1"), 0.1) == [Reply("other", Answer(id=1))]
    assert Reply("early", Answer(id=3)) in store.ask("other", ask("add", "y", amount=1), 0.2)
    assert store.ask("other", ask("set", "x", value=b"2"), 0.3) == [Reply("other", Answer(id=1))]


def test_a_question_expires_at_its_own_time() -> None:
    store = KeyValue()
    store.ask("a", ask("get", "never", timeout_ms=500), 10.0)
    assert store.expire(10.4) == []
    assert store.expire(10.5) == [Reply("a", Answer(id=1, error="timed out: never"))]
    assert store.expire(99.0) == []


def test_counters_count_from_zero_and_may_go_down() -> None:
    store = KeyValue()
    assert store.ask("a", ask("add", "n", amount=3), 0.0)[0].answer.number == 3
    assert store.ask("a", ask("add", "n", amount=-1), 0.0)[0].answer.number == 2
    assert store.ask("a", ask("get", "n"), 0.0)[0].answer.value == b"2"


def test_a_counter_that_is_text_is_an_error_and_not_a_crash() -> None:
    store = KeyValue()
    store.ask("a", ask("set", "n", value=b"text"), 0.0)
    assert "invalid literal" in store.ask("a", ask("add", "n", amount=1), 0.0)[0].answer.error


def test_compare_set_changes_only_what_is_as_expected() -> None:
    store = KeyValue()
    swap = store.ask("a", ask("compare_set", "k", value=b"new", expected=b"other"), 0.0)
    assert swap[0].answer.value == b"other"
    assert store.ask("a", ask("compare_set", "k", value=b"first", expected=b""), 0.0)[0].answer.value == b"first"
    assert store.ask("a", ask("compare_set", "k", value=b"second", expected=b"no"), 0.0)[0].answer.value == b"first"
    assert store.ask("a", ask("compare_set", "k", value=b"second", expected=b"first"), 0.0)[0].answer.value == b"second"


def test_keys_are_counted_checked_and_deleted() -> None:
    store = KeyValue()
    for key in ("g1/a", "g1/b", "g2/a"):
        store.ask("a", ask("append", key, value=b"v"), 0.0)
    assert store.ask("a", ask("num_keys", "g1/"), 0.0)[0].answer.number == 2
    assert store.ask("a", ask("check", "g1/a", "g2/a"), 0.0)[0].answer.number == 1
    assert store.ask("a", ask("delete", "g2/a"), 0.0)[0].answer.number == 1
    assert store.ask("a", ask("delete", "g2/a"), 0.0)[0].answer.number == 0
    assert store.ask("a", ask("check", "g1/a", "g2/a"), 0.0)[0].answer.number == 0


def test_a_forgotten_generation_takes_its_waiters_along() -> None:
    store = KeyValue()
    store.ask("a", ask("set", "g1/a", value=b"v"), 0.0)
    store.ask("old", ask("get", "g1/late", number=5, timeout_ms=60_000), 0.0)
    store.ask("new", ask("get", "g2/late", number=6, timeout_ms=60_000), 0.0)
    assert store.forget("g1/") == [Reply("old", Answer(id=5, error="superseded: g1/late"))]
    assert len(store) == 0
    late = store.ask("old", ask("set", "g1/a", number=8, value=b"v"), 0.0)
    assert late == [Reply("old", Answer(id=8, error="superseded: g1/a"))]
    assert not store.ask("new", ask("set", "g11/a", value=b"v"), 0.0)[0].answer.error


def test_the_store_is_bounded() -> None:
    store = KeyValue()
    half = bytes(LIMIT_BYTES // 2)
    assert not store.ask("a", ask("set", "one", value=half), 0.0)[0].answer.error
    assert "full" in store.ask("a", ask("set", "two", value=half), 0.0)[0].answer.error
    store.ask("a", ask("delete", "one"), 0.0)
    assert not store.ask("a", ask("set", "two", value=half), 0.0)[0].answer.error


def test_a_question_without_its_key_is_refused() -> None:
    assert KeyValue().ask("a", ask("set", value=b"v"), 0.0)[0].answer.error
