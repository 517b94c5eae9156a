"""CUDA's rule of compatibility, and which build a card needs."""

from __future__ import annotations

import pytest

from flodl.probe.capability import is_supported, known_archs, remedy, wheel_index

CU126 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (CU126, (6, 1), True),  # a GTX 1060 on machine code for 6.0
        (CU126, (8, 9), True),
        (CU126, (12, 0), False),
        (CU130, (6, 1), False),
        (CU130, (12, 1), True),
        (CU130, (10, 3), True),
        (CU130, (11, 0), False),  # another major number
        (("sm_61",), (6, 0), False),  # a minor number below
        (("compute_60",), (12, 0), True),  # PTX is compiled there
        (("compute_90",), (8, 6), False),
        (("sm_90a",), (9, 0), True),
        (("sm_90a",), (9, 1), False),
        (("compute_90a",), (12, 0), False),
        (("sm_100f",), (10, 3), True),
        (("gfx90a", "", "sm_x"), (9, 0), False),
        ((), (8, 0), False),
    ],
)
def test_same_major_and_a_minor_not_below_or_ptx(
    archs: tuple[str, ...], capability: tuple[int, int], runs: bool
) -> None:
    assert is_supported(archs, capability) is runs


def test_official_wheels_are_known_and_own_builds_are_not_guessed_at() -> None:
    assert "sm_60" in known_archs("2.13.0+cu126", "12.6")
    assert "sm_60" not in known_archs("2.13.0+cu128", "12.8")
    assert known_archs("2.13.0a0+git1234", "12.8") == ()
    assert known_archs("2.13.0+cpu", "") == ()


@pytest.mark.parametrize(
    ("capability", "found"),
    [
        ((6, 1), ("torch>=2.10,<2.15", "cu126")),
        ((7, 0), ("torch>=2.10,<2.15", "cu126")),
        ((7, 5), ("torch", "cu128")),
        ((12, 0), ("torch", "cu130")),
        ((3, 5), None),
    ],
)
def test_each_card_has_its_build(capability: tuple[int, int], found: tuple[str, str] | None) -> None:
    assert wheel_index(capability) == found


def test_the_command_survives_a_path_with_blanks_and_a_card_too_old_has_none() -> None:
    assert "'/my env/bin/python' -m pip install" in remedy("/my env/bin/python", (6, 1))
    assert "cpu:N" in remedy("/env/bin/python", (3, 5))
