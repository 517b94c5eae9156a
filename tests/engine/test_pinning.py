"""A rank sees its own GPU and no other, however its host names what it lends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl.engine.pinning import check_card, pinned
from flodl.errors import NotReady

UUID = "GPU-5d8bcb1d-2c1e-7d0a-4a9f-0123456789ab"
MIG = "MIG-2d5a7a4e-73f5-5a19-9d4b-8f3f4e3f1c9a"
OLD_MIG = f"MIG-{UUID}/1/0"


@pytest.mark.parametrize(
    ("device", "inherited", "seen"),
    [
        ("cpu", None, ""),
        ("cpu", "0,1", ""),
        ("cuda:0", None, "0"),
        ("cuda:3", None, "3"),
        ("cuda:0", "2,3", "2"),
        ("cuda:1", "2,3", "3"),
        ("cuda:1", " 2 , 3 ", "3"),
        ("cuda:1", f"{UUID},GPU-abc", "GPU-abc"),
        ("cuda:0", MIG, MIG),
        ("cuda:1", f"0,{OLD_MIG}", OLD_MIG),
        ("cuda:0", "", ""),
        ("cuda:0", "-1", ""),
        ("cuda:0", "NoDevFiles", "NoDevFiles"),
        ("cuda:1", "0,-1,1", ""),
        ("cuda:1", "0,,1", ""),
        ("cuda:2", "4,5", ""),
    ],
)
def test_a_rank_is_pinned_to_its_entry(device: str, inherited: str | None, seen: str) -> None:
    assert pinned(device, inherited) == seen


def test_a_slice_of_a_gpu_goes_by_its_own_name() -> None:
    assert pinned("cuda:1", None, MIG) == MIG
    assert pinned("cuda:1", None, UUID) == "1"
    assert pinned("cuda:0", "1", MIG) == "1"


@given(
    st.none() | st.lists(st.text("0123456789-GPUMIabcdef/ ", max_size=6), max_size=5).map(",".join), st.integers(0, 6)
)
def test_a_rank_sees_one_gpu_at_most_and_two_ranks_never_the_same_entry(inherited: str | None, number: int) -> None:
    mine, next_one = pinned(f"cuda:{number}", inherited), pinned(f"cuda:{number + 1}", inherited)
    assert "," not in mine
    assert mine == mine.strip()
    if inherited is None:
        assert mine != next_one
    elif next_one:
        assert mine, "entries are used in order"


@pytest.mark.parametrize("told", ["", UUID, UUID.upper(), UUID[4:], MIG, OLD_MIG])
def test_the_card_that_was_told_of_is_accepted(told: str) -> None:
    check_card("a: cuda:0", told, UUID.removeprefix("GPU-"))


def test_another_card_is_refused_with_both_names_and_a_way_out() -> None:
    with pytest.raises(NotReady) as refused:
        check_card("a: cuda:1", UUID, "ffffffff-0000-0000-0000-000000000000")
    said = str(refused.value)
    assert said.startswith(f"a: cuda:1 is GPU-ffffffff-0000-0000-0000-000000000000, and the host told of {UUID}")
    assert "nvidia-smi -L" in said
