"""What a host says about itself, as frozen values. The program on the host writes it, the controller reads it."""

from __future__ import annotations

import msgspec

__all__ = [
    "DataCopy",
    "Gpu",
    "GpuUser",
    "HostReport",
    "Interface",
    "Library",
    "Question",
]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is asked. path: working folder of its ranks ("": where the program runs). data_path: its data folder.

    data: parts of it that the job reads ("": all of it); none where the job reads no files. preload: LD_PRELOAD of its
    ranks. library_path: LD_LIBRARY_PATH of its ranks. modules: that the job's targets lie in.
    """

    path: str = ""
    data_path: str = ""
    data: tuple[str, ...] = ()
    preload: str = ""
    library_path: str = ""
    modules: tuple[str, ...] = ()


class GpuUser(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU. memory_bytes 0: not told."""

    pid: int
    name: str = ""
    memory_bytes: int = 0


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU that the host lends.

    index: its number in `local_devices`: in PCI order, of those that CUDA_VISIBLE_DEVICES of the host lends.
    installed_index: as nvidia-smi counts. capability: (major, minor). uuid: of the GPU, or of the MIG instance.
    """

    index: int
    uuid: str
    name: str
    installed_index: int = 0
    capability: tuple[int, int] = (0, 0)
    memory_total_bytes: int = 0
    memory_free_bytes: int = 0
    users: tuple[GpuUser, ...] = ()


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface and its addresses, IPv4 first."""

    name: str
    is_up: bool
    addresses: tuple[str, ...] = ()


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """The NCCL that a rank would load. version "": it could not be asked, trouble says why; path "": there is none."""

    path: str = ""
    version: str = ""
    trouble: str = ""
    is_preloaded: bool = False


class DataCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the host's data folder: a file, or all files below a folder.

    names, signature: of all names, and of names with sizes; equal copies have equal ones. ends: some of the files, by
    name, with the digest of their beginning and end. trouble: why it cannot be read. is_partial: there were too many
    files to look at all of them.
    """

    part: str
    path: str
    exists: bool = False
    num_files: int = 0
    num_bytes: int = 0
    names: str = ""
    signature: str = ""
    ends: dict[str, str] = {}
    trouble: str = ""
    is_partial: bool = False


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one host.

    torch, cuda: of the installed build, read without loading it ("" : none, or built for no GPU). archs: what the build
    was compiled for ("sm_80", "compute_90"), where its warm process has told it. missing_preloads: files of LD_PRELOAD
    that are not there. missing_modules: that the job names and a rank would not find. gpu_trouble: why GPUs cannot be
    counted; gpus is then empty and means nothing. port_range: the ports that its kernel hands out. latency_ms: one
    round trip to the host's agent; clock_offset_seconds: its clock minus the controller's, and clock_error_seconds:
    half the round trip that it was measured with. noise: what the login wrote before our program began.
    """

    host: str = ""
    hostname: str = ""
    os: str = ""
    python: str = ""
    executable: str = ""
    flodl: str = ""
    torch: str = ""
    cuda: str = ""
    archs: tuple[str, ...] = ()
    has_triton: bool = False
    nccl: Library = Library()
    missing_preloads: tuple[str, ...] = ()
    missing_modules: tuple[str, ...] = ()
    cores: int = 0
    memory_total_bytes: int = 0
    memory_free_bytes: int = 0
    path: str = ""
    path_exists: bool = False
    path_is_writable: bool = False
    disk_free_bytes: int = 0
    disk_free_inodes: int = 0
    data: tuple[DataCopy, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    port_range: tuple[int, int] = (32768, 60999)
    driver: str = ""
    lent_gpus: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str = ""
    latency_ms: float = 0.0
    clock_offset_seconds: float = 0.0
    clock_error_seconds: float = 0.0
    noise: tuple[str, ...] = ()
