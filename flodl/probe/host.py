"""The program that looks at a host: one line of question in, one line of report out, then its clock as often as asked.

    python -P -m flodl.probe.host

No torch, no CUDA context, nothing that lasts: it runs before every launch, beside the warm process. What cannot be told
is left out of the report or said in words; nothing here guesses.
"""

from __future__ import annotations

import platform
import sys
import time

import msgspec

from flodl.probe.folder import data_copies
from flodl.probe.gpus import see_gpus
from flodl.probe.machine import free_disk, free_memory_bytes, interfaces, num_cores, port_range, total_memory_bytes
from flodl.probe.project import missing_modules
from flodl.probe.report import HostReport, Question
from flodl.probe.software import distribution_version, has_module, missing_preloads, nccl_library, torch_build

__all__ = ["main", "report"]


def report(question: Question) -> HostReport:
    """Everything that this host can say about itself."""
    torch, cuda = torch_build()
    disk = free_disk(question.path)
    seen = see_gpus()
    return HostReport(
        hostname=platform.node(),
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        executable=sys.executable,
        flodl=distribution_version("flodl"),
        torch=torch,
        cuda=cuda,
        has_triton=has_module("triton"),
        nccl=nccl_library(question.preload, question.library_path, has_cuda=bool(cuda)),
        missing_preloads=missing_preloads(question.preload),
        missing_modules=missing_modules(question.modules, question.path),
        cores=num_cores(),
        memory_total_bytes=total_memory_bytes(),
        memory_free_bytes=free_memory_bytes(),
        path=disk.path,
        path_exists=disk.exists,
        path_is_writable=disk.is_writable,
        disk_free_bytes=disk.free_bytes,
        disk_free_inodes=disk.free_inodes,
        data=data_copies(question),
        interfaces=interfaces(),
        port_range=port_range(),
        driver=seen.driver,
        lent_gpus=seen.lent,
        gpus=seen.gpus,
        gpu_trouble=seen.trouble,
    )


def main() -> None:
    """Answer the question, then every further line with this host's time."""
    line = sys.stdin.readline()
    answer = report(msgspec.json.decode(line, type=Question)) if line.strip() else report(Question())
    _say(msgspec.json.encode(answer))
    while sys.stdin.readline():
        _say(repr(time.time()).encode())


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
