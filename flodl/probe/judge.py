"""Judgement over one host's report: what forbids a start there, and what a person should know. Pure.

Each rule is a function of (host, its key in the cluster file, its report) that yields findings. What is compared
between hosts is in `compare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flodl.probe import capability
from flodl.probe.compare import differences
from flodl.probe.finding import Finding
from flodl.probe.here import is_here
from flodl.probe.report import Gpu, HostReport, Interface
from flodl.spec.cluster import HostSpec
from flodl.spec.devices import cpu_count
from flodl.spec.job import JobSpec

__all__ = ["chosen_gpus", "judge"]

CLOCK_SECONDS = 1.0
FULL_DISK_BYTES = 1 << 20
LITTLE_DISK_BYTES = 512 << 20
LITTLE_MEMORY_BYTES = 1 << 30
FEW_INODES = 1000
BUSY_BYTES = 512 << 20  # of GPU memory: more than a driver keeps for itself
GIB = 1 << 30


class _Case:
    """One host of the job and what it said. key: its place in the cluster file."""

    def __init__(self, job: JobSpec, place: int, report: HostReport, flodl: str) -> None:
        self.host: HostSpec = job.cluster.workers[place]
        self.key = f"cluster.workers[{place}]"
        self.report = report
        self.flodl = flodl  # the controller's version
        workers = job.cluster.workers  # two hosts may be this machine under two names
        self.is_alone = len(workers) == 1 or all(is_here(host) for host in workers)
        self.is_pushed_to = "rsync" in (job.cluster.deploy.code, job.cluster.deploy.data) and not is_here(self.host)
        self.wants_nccl = job.elche.mode.startswith("nccl")
        self.preload = job.cluster.env_of(self.host).get("LD_PRELOAD", "")

    def error(self, key: str, message: str, remedy: str = "") -> Finding:
        return Finding(severity="error", host=self.host.host, key=self._full(key), message=message, remedy=remedy)

    def warning(self, key: str, message: str, remedy: str = "") -> Finding:
        return Finding(severity="warning", host=self.host.host, key=self._full(key), message=message, remedy=remedy)

    def _full(self, key: str) -> str:
        """ ".path" is a key of the host; a word without a dot is what the finding is about."""
        return f"{self.key}{key}" if key.startswith(".") else key


def judge(job: JobSpec, reports: Mapping[str, HostReport], flodl: str) -> tuple[Finding, ...]:
    """Every finding, host by host in the order of the cluster file. flodl: the version of the controller."""
    found: list[Finding] = []
    for place, host in enumerate(job.cluster.workers):
        if host.host in reports:
            case = _Case(job, place, reports[host.host], flodl)
            found += [finding for rule in _RULES for finding in rule(case)]
    return (*found, *differences(job, reports, chosen={h: chosen_gpus(job, r) for h, r in reports.items()}))


def chosen_gpus(job: JobSpec, report: HostReport) -> tuple[Gpu, ...]:
    """The GPUs of a host that `local_devices` names."""
    host = next(host for host in job.cluster.workers if host.host == report.host)
    asked = host.local_devices
    if isinstance(asked, tuple):
        return tuple(gpu for gpu in report.gpus if gpu.index in asked)
    return () if cpu_count(asked) is not None else report.gpus


# ----------------------------------------------------------------------------------------------------- the software


def _flodl(case: _Case) -> Iterator[Finding]:
    there, here = case.report.flodl, case.flodl
    if there and here and there != here:
        yield case.error(
            ".python",
            f"flodl {there} is installed there, and the controller is flodl {here}",
            f"on that host: {case.report.executable} -m pip install flodl=={here}",
        )


def _torch(case: _Case) -> Iterator[Finding]:
    if not case.report.torch:
        yield case.error(
            ".python",
            f"{case.report.executable} has no torch",
            "name another interpreter (python: or arch:), or make an environment with task=setup",
        )


def _preload(case: _Case) -> Iterator[Finding]:
    for path in case.report.missing_preloads:
        yield case.error(
            ".env.LD_PRELOAD",
            f"{path} does not exist there: ranks would run without it",
            "build it with task=nccl_build, or correct the path",
        )


def _nccl(case: _Case) -> Iterator[Finding]:
    nccl = case.report.nccl
    if not nccl.trouble or nccl.path in case.report.missing_preloads:
        return
    message = f"NCCL cannot be loaded from {nccl.path}: {nccl.trouble}"
    key = ".env.LD_PRELOAD" if nccl.is_preloaded else "nccl"
    if case.wants_nccl or nccl.is_preloaded:
        yield case.error(key, message, "name another library in env.LD_PRELOAD, or use a cpu_* mode")
    elif _chosen(case):
        yield case.warning(key, message, "nccl_* modes will not work there")


# ------------------------------------------------------------------------------------------------------- the devices


def _devices(case: _Case) -> Iterator[Finding]:
    asked, count = case.host.local_devices, len(case.report.gpus)
    if cpu_count(asked) is not None:
        return
    if case.report.gpu_trouble:
        message = f"its GPUs cannot be counted: {case.report.gpu_trouble}"
        remedy = "mend the driver (`nvidia-smi` there must list the GPUs), or use cpu:N"
        yield (
            case.warning(".local_devices", message, remedy)
            if asked == "auto"
            else case.error(".local_devices", message, remedy)
        )
        return
    lent = "" if case.report.lent_gpus is None else f" (CUDA_VISIBLE_DEVICES={case.report.lent_gpus} there)"
    if asked == "all" and not count:
        yield case.error(".local_devices", f"no GPU was found{lent}", "use cpu:N to train on the CPU")
    for number in asked if isinstance(asked, tuple) else ():
        if number >= count:
            yield case.error(
                ".local_devices",
                f"GPU {number} is not there: the host lends {count}{lent}",
                "name devices that exist, or use cpu:N",
            )


def _support(case: _Case) -> Iterator[Finding]:
    report = case.report
    archs = report.archs or capability.known_archs(report.torch, report.cuda)
    for gpu in _chosen(case) if report.torch else ():
        if report.cuda and (not archs or capability.is_supported(archs, gpu.capability)):
            continue
        build = f"torch {report.torch}"
        why = f"which is compiled for {' '.join(archs)}" if report.cuda else "which is built for no GPU at all"
        yield case.error(
            ".python",
            f"{_gpu_name(gpu)} is not supported by {build}, {why}",
            capability.remedy(report.executable, gpu.capability),
        )


def _abilities(case: _Case) -> Iterator[Finding]:
    for gpu in _chosen(case):
        if gpu.capability < capability.TRITON:
            yield case.warning("gpu", f"{_gpu_name(gpu)} is too old for torch.compile (Triton needs 7.0)",
                               "compile: auto does without there")  # fmt: skip
        if gpu.capability < capability.BF16:
            yield case.warning("gpu", f"{_gpu_name(gpu)} has no native bfloat16 (8.0 has)",
                               "precision: auto takes what the card can do")  # fmt: skip


def _busy(case: _Case) -> Iterator[Finding]:
    for gpu in _chosen(case):
        used = gpu.memory_total_bytes - gpu.memory_free_bytes
        users = ", ".join(f"{user.name or 'process'} {user.pid}" for user in gpu.users)
        if users or used > BUSY_BYTES:
            yield case.warning(
                "gpu",
                f"{_gpu_name(gpu)}: {used / GIB:.1f} of {gpu.memory_total_bytes / GIB:.1f} GiB are in use by "
                f"{users or 'processes that cannot be seen'}",
                "end them, or leave this GPU out of local_devices",
            )


def _chosen(case: _Case) -> tuple[Gpu, ...]:
    asked = case.host.local_devices
    if cpu_count(asked) is not None:
        return ()
    return tuple(gpu for gpu in case.report.gpus if not isinstance(asked, tuple) or gpu.index in asked)


def _gpu_name(gpu: Gpu) -> str:
    major, minor = gpu.capability
    return f"GPU {gpu.index} ({gpu.name}, capability {major}.{minor})"


# ------------------------------------------------------------------------------------------------- folders and disks


def _folder(case: _Case) -> Iterator[Finding]:
    if not case.report.path_exists:
        yield case.error(
            ".path",
            f"{case.report.path} does not exist there",
            "create it, correct path:, or push the project with deploy.code=rsync",
        )


def _modules(case: _Case) -> Iterator[Finding]:
    for name in case.report.missing_modules if case.report.path_exists else ():
        yield case.error(
            ".path",
            f"the module {name} is missing on {case.host.host}: it is not in {case.report.path}, nor installed there",
            "copy the project there, push it with deploy.code=rsync, or install the package for that interpreter",
        )


def _disk(case: _Case) -> Iterator[Finding]:
    report = case.report
    if case.is_pushed_to and (report.disk_free_bytes < FULL_DISK_BYTES or report.disk_free_inodes == 0):
        yield case.error(".path", f"the disk at {report.path} is full, and deploy pushes to it",
                         "make room there, or name a folder on another disk")  # fmt: skip
        return
    if report.disk_free_bytes < LITTLE_DISK_BYTES:
        free = f"{report.disk_free_bytes / (1 << 20):,.0f} MiB"
        yield case.warning("disk", f"{free} are free at {report.path}", "make room there")
    if 0 <= report.disk_free_inodes < FEW_INODES:
        yield case.warning("disk", f"{report.disk_free_inodes} more files fit at {report.path}", "make room there")


def _memory(case: _Case) -> Iterator[Finding]:
    if case.report.memory_free_bytes < LITTLE_MEMORY_BYTES:
        free = f"{case.report.memory_free_bytes / (1 << 20):,.0f} MiB"
        yield case.warning("memory", f"{free} of memory are free", "end what fills it")


# ----------------------------------------------------------------------------------------------- network and clock


def _interface(case: _Case) -> Iterator[Finding]:
    wanted = case.host.nccl_socket_ifname
    if wanted is None:
        return
    key = ".nccl_socket_ifname"
    remedy = f"interfaces there: {_listed(case.report.interfaces)}"
    found = next((interface for interface in case.report.interfaces if interface.name == wanted), None)
    if found is None:
        yield case.error(key, f"{wanted} is no network interface of that host", remedy)
    elif not found.is_up:
        yield case.error(key, f"{wanted} is switched off", f"`ip link set {wanted} up` there; {remedy}")
    elif not found.addresses:
        yield case.error(key, f"{wanted} has no address", remedy)
    elif not case.is_alone and all(_is_loopback(address) for address in found.addresses):
        yield case.error(key, f"{wanted} reaches no other host", remedy)


def _clock(case: _Case) -> Iterator[Finding]:
    offset = case.report.clock_offset_seconds
    if abs(offset) - case.report.clock_error_seconds > CLOCK_SECONDS:
        side = "ahead of" if offset > 0 else "behind"
        yield case.warning("clock", f"its clock is {abs(offset):.1f} s {side} the controller's",
                           "run chrony or systemd-timesyncd there: times in logs do not match")  # fmt: skip


def _noise(case: _Case) -> Iterator[Finding]:
    if case.report.noise:
        first = case.report.noise[0][:80]
        yield case.warning("login", f"its login writes {len(case.report.noise)} lines of its own: {first!r}",
                           "harmless; guard `echo` in its shell's startup files for interactive use")  # fmt: skip


def _listed(interfaces: tuple[Interface, ...]) -> str:
    with_address = [i for i in interfaces if i.addresses]
    return ", ".join(f"{i.name} ({i.addresses[0]})" for i in with_address) or "none has an address"


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


_RULES: tuple[Callable[[_Case], Iterator[Finding]], ...] = (
    _folder,
    _modules,
    _flodl,
    _torch,
    _preload,
    _nccl,
    _devices,
    _support,
    _interface,
    _busy,
    _abilities,
    _disk,
    _memory,
    _clock,
    _noise,
)
