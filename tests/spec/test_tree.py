"""Walks over config trees tell every string with its place."""

from __future__ import annotations

from flodl.spec.tree import mapped, strings

TREE = {"a": "x", "b": [1, "y", {"c": "z"}], "d": None, "e": ("t",)}


def test_every_string_is_told_with_its_place_in_order() -> None:
    assert list(strings(TREE, "m")) == [("m.a", "x"), ("m.b[1]", "y"), ("m.b[2].c", "z"), ("m.e[0]", "t")]


def test_a_copy_differs_only_in_its_strings() -> None:
    changed = mapped(TREE, "m", lambda key, text: f"{key}={text}")
    assert changed == {"a": "m.a=x", "b": [1, "m.b[1]=y", {"c": "m.b[2].c=z"}], "d": None, "e": ["m.e[0]=t"]}


def test_the_tree_itself_is_left_alone() -> None:
    tree = {"a": ["x"]}
    mapped(tree, "m", lambda key, text: "changed")
    assert tree == {"a": ["x"]}
