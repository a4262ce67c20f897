"""Facts about the GPUs and the CPU, gathered without creating a CUDA context in this process."""

import contextlib
import functools
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from kernelgen.child_python import said_by
from kernelgen.hardware import driver_probe
from kernelgen.hardware.conditions import Monitor

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

_PROBE_SECONDS = 60.0
_NO_DRIVER = "no NVIDIA driver is installed (libcuda.so.1 is missing)"
_NO_DEVICE = "the driver offers no device"


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as this process would see it, CUDA_VISIBLE_DEVICES included.

    Attributes:
        compute_capability: major and minor, such as (9, 0).
        free_bytes: at the time of asking; None where NVML does not tell.
        driver: version such as `580.65.06`; None where NVML does not tell.
        uuid: as `GPU-...`; "" if it is not known.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    memory_bytes: int
    free_bytes: int | None = None
    driver: str | None = None
    uuid: str = ""


class GpuSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that are there, or why there is none.

    Attributes:
        version: the newest CUDA that the driver knows, such as 13000 for 13.0.
    """

    devices: tuple[DeviceFacts, ...] = ()
    reason: str = ""
    version: int = 0


class CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The processor and its memory.

    Attributes:
        cores: that this process may use.
    """

    name: str
    cores: int
    memory_bytes: int


def has_gpu_driver() -> bool:
    """Guess, quickly, whether there is a driver for NVIDIA's GPUs; the other is WSL's."""
    return any(Path(made).exists() for made in ("/dev/nvidiactl", "/dev/dxg"))


def survey_gpus() -> GpuSurvey:
    """Return the GPUs that CUDA would offer, asked for in a process of its own."""
    found = ask_driver()
    return msgspec.structs.replace(found, devices=tuple(map(_with_live_facts, found.devices)))


@functools.cache
def facts_of(gpu: str) -> DeviceFacts | None:
    """Return what the driver tells of a GPU, named as in CUDA_VISIBLE_DEVICES; None without it."""
    devices = ask_driver(gpu).devices if has_gpu_driver() else ()
    return devices[0] if devices else None


def capability_of(gpu: str) -> tuple[int, int] | None:
    """Return the compute capability of a GPU, as `facts_of`."""
    facts = facts_of(gpu)
    return facts.compute_capability if facts else None


def ask_driver(gpu: str | None = None) -> GpuSurvey:
    """Return the GPUs that the driver offers, without the facts that only NVML tells.

    Args:
        gpu: the only one to be seen, as CUDA_VISIBLE_DEVICES names it.
    """
    command = [sys.executable, "-I", str(driver_probe.__file__)]
    environment = os.environ if gpu is None else {**os.environ, VISIBLE_GPUS: gpu}
    try:
        said = said_by(command, _PROBE_SECONDS, env=environment, stderr=subprocess.PIPE)
    except subprocess.TimeoutExpired:
        return GpuSurvey(reason=f"the driver did not answer within {_PROBE_SECONDS:g} s")
    except subprocess.CalledProcessError as error:
        return GpuSurvey(reason=f"asking the driver ended with exit code {error.returncode}")
    found = msgspec.json.decode(said, type=GpuSurvey)
    if found.devices:
        return found
    why = f"the NVIDIA driver says: {found.reason}" if found.reason else _NO_DEVICE
    return GpuSurvey(reason=_NO_DRIVER if "libcuda.so.1" in found.reason else why)


def visible_gpus(count: int) -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES calls the first GPUs that this process would see."""
    given = os.environ.get(VISIBLE_GPUS)
    names = [str(index) for index in range(count)] if given is None else given.split(",")
    return tuple(name.strip() for name in names[:count])


def all_gpus() -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES calls every GPU that this process would see."""
    return visible_gpus(len(ask_driver().devices)) if has_gpu_driver() else ()


def cpu_facts() -> CpuFacts:
    """Return the facts of this machine's processor."""
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return CpuFacts(
        name=model.group(1).strip() if model else platform.machine(),
        cores=usable_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def usable_cores() -> int:
    """Return how many cores this process may run on, which a container may have made fewer."""
    return len(os.sched_getaffinity(0))


def _with_live_facts(device: DeviceFacts) -> DeviceFacts:
    with Monitor(device.uuid) as monitor:
        free_bytes, driver = monitor.free_bytes(), monitor.driver()
    if free_bytes is not None:
        free_bytes = min(free_bytes, device.memory_bytes)
    return msgspec.structs.replace(device, free_bytes=free_bytes, driver=driver)
