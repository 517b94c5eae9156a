"""GPUs are watched while a run goes on: what NVML tells becomes samples, samples become means, peaks and times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pynvml

from flodl.engine.fleet import AgentFleet
from flodl.ports import HostCall
from flodl.probe.sampling import GpuSample, Sample, sampled
from flodl.probe.watching import GpuWatch
from flodl.record.gpu_use import GpuUse
from flodl.spec.cluster import HostSpec
from tests.probe.jobs import gpu

GIB = 1 << 30
ROOT = Path(__file__).parents[2]
NVML: dict[str, Any] = {
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=87, memory=10),
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=3 * GIB, total=8 * GIB),
    "nvmlDeviceGetPowerUsage": lambda handle: 120_500,
    "nvmlDeviceGetTemperature": lambda handle, kind: 71,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x04 | 0x20 | 0x40 | 0x01,
}


def driver(**told: Any) -> SimpleNamespace:
    return SimpleNamespace(NVMLError=pynvml.NVMLError, NVML_TEMPERATURE_GPU=0, **(NVML | told))


def refuses(*_: Any) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_what_nvml_tells_has_units() -> None:
    assert sampled(driver(), "GPU-0", "handle") == GpuSample(
        uuid="GPU-0",
        utilisation=0.87,
        memory_used_bytes=3 * GIB,
        memory_total_bytes=8 * GIB,
        temperature_celsius=71.0,
        power_watts=120.5,
        throttled=("power", "temperature"),
    )


def test_what_a_card_does_not_tell_is_null() -> None:
    assert sampled(driver(**dict.fromkeys(NVML, refuses)), "GPU-0", "handle") == GpuSample(uuid="GPU-0")


class Lines:
    """A program that has said these lines."""

    def __init__(self, *lines: str) -> None:
        self.lines, self.is_ended = list(lines), False

    def line(self, timeout_seconds: float) -> str | None:
        assert timeout_seconds == 0.0
        return self.lines.pop(0) if self.lines else None

    def give(self, line: str) -> None:
        raise AssertionError

    def end(self) -> int | None:
        self.is_ended = True
        return 0

    def errors(self) -> tuple[str, ...]:
        return ()


def line(uuid: str = "GPU-0", **figures: Any) -> str:
    return msgspec.json.encode(Sample(gpus=(GpuSample(uuid=uuid, **figures),))).decode()


def watch(program: Lines) -> GpuWatch:
    times = iter(range(100))
    return GpuWatch({"a": program}, {"a": (gpu(),), "b": (gpu(),)}, 2.0, clock=lambda: next(times) * 10.0)


def test_samples_become_means_peaks_and_times() -> None:
    one = line(utilisation=0.5, memory_used_bytes=4, temperature_celsius=60.0, power_watts=100.0, throttled=("power",))
    other = line(utilisation=1.0, memory_used_bytes=3, temperature_celsius=70.0, memory_total_bytes=8)
    watching = watch(Lines(one, "Welcome!", line("GPU-unknown"), other))
    expected = GpuUse(
        host="a",
        index=0,
        uuid="GPU-0",
        name="RTX 3090",
        seconds=4.0,
        utilisation=0.75,
        memory_peak_bytes=4,
        memory_total_bytes=8,
        temperature_peak_celsius=70.0,
        power_mean_watts=100.0,
        throttled_seconds={"power": 2.0},
    )
    assert watching.taken() == (expected,)
    assert watching.taken() == ()
    assert watching.totals() == (expected,)


def test_who_has_said_nothing_has_no_figures_and_the_programs_end() -> None:
    program = Lines()
    watching = watch(program)
    assert watching.taken() == watching.totals() == ()
    watching.close()
    watching.close()
    assert program.is_ended


def test_a_host_without_that_gpu_keeps_no_program(fleet: AgentFleet) -> None:
    call = HostCall(spec=HostSpec(host="localhost"), here=True, preload=())
    fleet.meet([call])
    errand = fleet.run("localhost", "flodl.probe.sampling", '{"uuids": ["GPU-none"]}')
    assert errand.line(20.0) is None
    assert errand.end() == 0
    watching = GpuWatch.begin(fleet, {"localhost": (gpu(uuid="GPU-none"),), "unmet": (gpu(),), "cpu": ()})
    assert watching.taken() == ()
    watching.close()


STAND_IN = """\
class NVMLError(Exception): pass
NVML_TEMPERATURE_GPU = 0
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "GPU-0":
        raise NVMLError(uuid)
    return uuid
def nvmlDeviceGetTemperature(handle, kind): return 50
def __getattr__(name):
    def refuse(*_): raise NVMLError(name)
    return refuse
"""


def test_the_program_samples_until_its_input_ends(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    program = [sys.executable, "-P", "-m", "flodl.probe.sampling"]
    with subprocess.Popen(program, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write('{"uuids": ["GPU-gone", "GPU-0"], "interval_seconds": 0.02}\n')
        running.stdin.flush()
        lines = [running.stdout.readline() for _ in range(3)]
        running.stdin.close()
        assert running.wait(10) == 0
    samples = [msgspec.json.decode(line, type=Sample) for line in lines]
    assert samples == [Sample(gpus=(GpuSample(uuid="GPU-0", temperature_celsius=50.0),))] * 3


def test_it_is_asked_for_no_more_often_than_there_is_news() -> None:
    watching = GpuWatch({"a": Lines(line(), line())}, {"a": (gpu(),)}, 2.0, clock=lambda: 5.0)
    watching.keep()
    watching._errands["a"].lines.append(line())  # type: ignore[attr-defined]
    watching.keep()
    assert [use.seconds for use in watching.totals()] == [4.0]
