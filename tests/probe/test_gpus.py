"""GPUs as NVML and nvidia-smi tell them; what cannot be read is trouble, and never "no GPUs"."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from flodl.probe.gpus import count_gpus, nvml_gpus, see_gpus, smi_gpus

MIB = 1 << 20
GPUS = """0, GPU-aa, NVIDIA GeForce RTX 5060 Ti, 12.0, 16311, 15000, 580.95.05
1, GPU-bb, NVIDIA GeForce GTX 1060 6GB, 6.1, 6144, [N/A], 580.95.05
"""
USERS = "GPU-aa, 4242, /usr/bin/python3, 1024\nGPU-aa, 4343, [N/A], [N/A]\n"


def has_nvml() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True


needs_no_nvml = pytest.mark.skipif(has_nvml(), reason="this machine has a driver, which is asked first")


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts an nvidia-smi on the PATH that answers with a text, or runs a line of shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def answer(gpus: str = GPUS, users: str = USERS, then: str = "exit 0") -> None:
        (tmp_path / "gpus").write_text(gpus)
        (tmp_path / "users").write_text(users)
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\ncase "$1" in --query-gpu=*) cat {tmp_path}/gpus;; *) cat {tmp_path}/users;; esac\n{then}\n'
        )
        program.chmod(0o755)

    return answer


def test_what_nvidia_smi_prints_is_read() -> None:
    driver, (one, other) = smi_gpus(GPUS, USERS)
    assert driver == "580.95.05"
    assert (one.uuid, one.capability, one.memory_total_bytes) == ("GPU-aa", (12, 0), 16311 * MIB)
    assert [(user.pid, user.memory_bytes) for user in one.users] == [(4242, 1024 * MIB), (4343, 0)]
    assert (other.installed_index, other.capability, other.memory_free_bytes, other.users) == (1, (6, 1), 0, ())


@pytest.mark.parametrize("text", ["", "No devices were found", "0, GPU-aa, x", "a, b, c, d, e, f, g"])
def test_an_answer_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        smi_gpus(text)


@needs_no_nvml
def test_without_the_library_nvidia_smi_is_asked(smi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    smi()
    assert [gpu.uuid for gpu in see_gpus().gpus] == ["GPU-aa", "GPU-bb"]
    assert see_gpus().driver == "580.95.05"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb")
    assert [(gpu.index, gpu.installed_index) for gpu in see_gpus().gpus] == [(0, 1)]
    assert count_gpus() == 1


@needs_no_nvml
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"gpus": "Failed to initialize NVML: mismatch\n", "then": "exit 18"}, "exit code 18: Failed to initialize"),
        ({"gpus": "garbage\n"}, "cannot be read: garbage"),
        ({"gpus": ""}, "cannot be read: nothing"),
    ],
)
def test_an_answer_that_cannot_be_read_is_trouble_in_words(smi: Any, answer: dict[str, str], words: str) -> None:
    smi(**answer)
    seen = see_gpus()
    assert seen.gpus == ()
    assert words in seen.trouble


@needs_no_nvml
def test_a_machine_without_cards_has_none_and_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert see_gpus().gpus == ()
    assert see_gpus().trouble == ""


class Driver:
    """The part of NVML that is asked: GPU 0 is whole, GPU 1 is cut into two MIG instances of three places."""

    NVMLError = pynvml.NVMLError

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.1"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"GPU-{index}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        return (9, 0) if handle == "GPU-1" else (6, 1)

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:  # noqa: N802
        if handle == "GPU-0":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, place: int) -> str:  # noqa: N802
        if place == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"MIG-{place}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=8 * MIB, free=7 * MIB)

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:  # noqa: N802
        return b"H100"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        if handle == "GPU-0":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return [SimpleNamespace(pid=2**22 + 1, usedGpuMemory=None)]


def test_mig_instances_count_as_devices_and_what_a_driver_does_not_tell_is_left_out() -> None:
    driver, gpus = nvml_gpus(Driver())
    assert driver == "580.1"
    assert [(gpu.uuid, gpu.index, gpu.installed_index) for gpu in gpus] == [
        ("GPU-0", 0, 0),
        ("MIG-0", 1, 1),
        ("MIG-2", 2, 1),
    ]
    assert [gpu.capability for gpu in gpus] == [(6, 1), (9, 0), (9, 0)]
    assert gpus[0].users == ()
    assert [(user.name, user.memory_bytes) for user in gpus[1].users] == [("", 0)]
    assert gpus[1].name == "H100"
