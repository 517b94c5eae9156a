"""One rank, one GPU: which name goes into its CUDA_VISIBLE_DEVICES, and whether CUDA then found the right card.

A rank's "cuda:N" counts the GPUs that its host lends, in PCI order. Where the host's login has a CUDA_VISIBLE_DEVICES
of its own (numbers, UUIDs or beginnings of them, MIG names, nothing at all), N counts its entries, and the entry is
passed on as it stands: what lends a part of a machine (a batch system, a container) says so in its own words.
"""

from __future__ import annotations

from flodl.errors import NotReady

__all__ = ["check_card", "pinned"]

MIG = "mig-"


def pinned(device: str, inherited: str | None, uuid: str = "") -> str:
    """CUDA_VISIBLE_DEVICES of a rank; "" where it sees no GPU, for it needs none or is lent none.

    inherited: the variable as its host has it, None where it is not set. uuid: of the GPU, as far as it is known.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return ""
    if inherited is None:
        return uuid if uuid.lower().startswith(MIG) else number  # slices of one GPU have no number of their own
    lent = _entries(inherited)
    return lent[int(number)] if int(number) < len(lent) else ""


def _entries(inherited: str) -> list[str]:
    """The entries that CUDA reads: up to the first that names no device."""
    lent: list[str] = []
    for entry in inherited.split(","):
        name = entry.strip()
        if not name or name.startswith("-"):
            break
        lent.append(name)
    return lent


def check_card(where: str, told: str, found: str) -> None:
    """Raise NotReady where the rank's GPU is not the one that the host told of. told "": nobody asked.

    Slices of a GPU (MIG) are named by themselves already, and CUDA may answer with the whole card's UUID.
    """
    if not told or told.lower().startswith(MIG) or _bare(told) == _bare(found):
        return
    raise NotReady(
        f"{where} is GPU-{_bare(found)}, and the host told of {told} before the start: its GPUs are counted in another "
        "order now; start again, or export CUDA_VISIBLE_DEVICES there with the UUIDs that `nvidia-smi -L` lists"
    )


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")
