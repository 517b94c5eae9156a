"""The GPUs of this machine, asked from NVML (nvidia-smi where its library is not found): no CUDA context is made."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl.probe.lent import lent_gpus
from flodl.probe.report import Gpu, GpuUser

__all__ = ["Seen", "count_gpus", "nvml_gpus", "see_gpus", "smi_gpus"]

SMI_SECONDS = 10.0
MIB = 1 << 20
_GPU_FIELDS = "index,uuid,name,compute_cap,memory.total,memory.free,driver_version"
_USER_FIELDS = "gpu_uuid,pid,process_name,used_memory"
_DRIVER = Path("/proc/driver/nvidia/version")
_PCI = Path("/sys/bus/pci/devices")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """gpus: those that are lent. lent: CUDA_VISIBLE_DEVICES, None where it is not set. trouble: why GPUs cannot be
    counted; gpus is then empty and means nothing."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    lent: str | None = None
    trouble: str = ""


def count_gpus() -> int:
    """GPUs that a run may use here. 0 without a driver."""
    return len(see_gpus().gpus)


def see_gpus() -> Seen:
    """What this machine lends. A machine without NVIDIA cards has none; one with cards that do not answer says why."""
    lent = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        driver, installed = _installed()
    except _Silent as silent:
        trouble = str(silent) if _has_cards() else ""
        return Seen(lent=lent, trouble=trouble)
    return Seen(gpus=lent_gpus(installed, lent), driver=driver, lent=lent)


class _Silent(Exception):
    """The driver does not answer, or not in a way that can be understood."""


def _installed() -> tuple[str, tuple[Gpu, ...]]:
    try:
        import pynvml as nvml
    except ImportError:
        return _from_smi("nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound as error:  # pyright: ignore[reportAttributeAccessIssue]
        return _from_smi(f"NVML: {error}")
    except nvml.NVMLError as error:
        raise _Silent(f"NVML: {error}") from None
    try:
        return nvml_gpus(nvml)
    except nvml.NVMLError as error:
        raise _Silent(f"NVML: {error}") from None
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


# ------------------------------------------------------------------------------------------------------------ NVML


def nvml_gpus(nvml: Any) -> tuple[str, tuple[Gpu, ...]]:
    """(driver, GPUs) from an initialised NVML. A GPU that is cut into MIG instances is their number of devices."""
    found: list[Gpu] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
        for part in _parts(nvml, handle):
            memory = nvml.nvmlDeviceGetMemoryInfo(part)
            found.append(
                Gpu(
                    index=len(found),
                    installed_index=index,
                    uuid=_text(nvml.nvmlDeviceGetUUID(part)),
                    name=_text(nvml.nvmlDeviceGetName(part)),
                    capability=(capability[0], capability[1]),
                    memory_total_bytes=memory.total,
                    memory_free_bytes=memory.free,
                    users=tuple(_users(nvml, part)),
                )
            )
    return _text(nvml.nvmlSystemGetDriverVersion()), tuple(found)


def _parts(nvml: Any, handle: Any) -> list[Any]:
    """The MIG instances of a GPU that is in that mode, else itself."""
    try:
        is_cut, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:  # this card knows no such thing
        return [handle]
    if not is_cut:
        return [handle]
    parts: list[Any] = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError):  # not taken
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
    return parts


def _users(nvml: Any, handle: Any) -> Iterator[GpuUser]:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:  # some drivers tell nobody
        return
    for process in running:
        yield GpuUser(pid=process.pid, name=_process_name(process.pid), memory_bytes=process.usedGpuMemory or 0)


def _process_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""  # of another container, or gone


def _text(found: str | bytes) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


# ------------------------------------------------------------------------------------------------------ nvidia-smi


def smi_gpus(gpus: str, users: str = "") -> tuple[str, tuple[Gpu, ...]]:
    """(driver, GPUs) from what nvidia-smi printed. Raises ValueError for an answer that cannot be read."""
    busy: dict[str, list[GpuUser]] = {}
    for uuid, pid, name, memory in _rows(users, 4):
        busy.setdefault(uuid, []).append(GpuUser(pid=int(pid), name=name, memory_bytes=_mib(memory)))
    found: list[Gpu] = []
    driver = ""
    for index, uuid, name, capability, total, free, driver in _rows(gpus, 7):  # noqa: B007  the last one's is kept
        major, _, minor = capability.partition(".")
        found.append(
            Gpu(
                index=len(found),
                installed_index=int(index),
                uuid=uuid,
                name=name,
                capability=(int(major), int(minor)),
                memory_total_bytes=_mib(total),
                memory_free_bytes=_mib(free),
                users=tuple(busy.get(uuid, ())),
            )
        )
    if not found:
        raise ValueError(gpus.strip()[:200] or "nothing")
    return driver, tuple(found)


def _from_smi(why: str) -> tuple[str, tuple[Gpu, ...]]:
    try:
        gpus = _smi(f"--query-gpu={_GPU_FIELDS}")
        with contextlib.suppress(_Silent, ValueError):
            return smi_gpus(gpus, _smi(f"--query-compute-apps={_USER_FIELDS}"))
        return smi_gpus(gpus)
    except FileNotFoundError:
        raise _Silent(f"{why}, and there is no nvidia-smi") from None
    except ValueError as error:
        raise _Silent(f"nvidia-smi answered in a way that cannot be read: {error}") from None


def _smi(query: str) -> str:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SMI_SECONDS,
                              stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _Silent(f"nvidia-smi did not answer within {SMI_SECONDS:g} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise _Silent(f"nvidia-smi ended with exit code {done.returncode}: {said[0] if said else 'no word'}")
    return done.stdout


def _rows(text: str, num_fields: int) -> Iterator[Sequence[str]]:
    for line in text.splitlines():
        if line.strip():
            fields = [field.strip() for field in line.split(",")]
            if len(fields) != num_fields:
                raise ValueError(line[:200])
            yield fields


def _mib(text: str) -> int:
    return int(text) * MIB if text.isdigit() else 0  # "[N/A]"


def _has_cards() -> bool:
    """Whether there is a reason to expect an answer: a loaded driver, a device file, a card on the bus."""
    if _DRIVER.exists() or Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return True
    return any(_is_nvidia_display(device) for device in _PCI.glob("*")) or _has_smi()


def _has_smi() -> bool:
    return any((Path(folder) / "nvidia-smi").is_file() for folder in os.environ.get("PATH", "").split(":") if folder)


def _is_nvidia_display(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text().strip()
        kind = (device / "class").read_text().strip()
    except OSError:
        return False
    return vendor == "0x10de" and kind.startswith("0x03")
