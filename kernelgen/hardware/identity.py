"""Identity of a device for a calibration: all that its rates depend on."""

import importlib.metadata
import re
from typing import Literal

import msgspec

from kernelgen.hardware.device import ask_driver, cpu_facts

_GIBIBYTE = 1 << 30
_RELEASE = re.compile(r"\d+\.\d+")


class DeviceIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of device, with the software that its rates depend on.

    Two GPUs of one machine that are alike in all of this share a calibration.

    Attributes:
        device: `cuda` or `cpu`.
        name: as the driver or /proc/cpuinfo gives it.
        units: streaming multiprocessors of a GPU, cores that may be used of a CPU.
        memory_gib: the device's memory, to the nearest GiB.
        driver: the newest CUDA version that the driver knows, such as `13.0`; "" for a CPU.
        torch: its release without the patch, such as `2.11`: it brings the matrix products.
    """

    device: Literal["cuda", "cpu"]
    name: str
    units: int
    memory_gib: int
    driver: str
    torch: str


def cpu_identity() -> DeviceIdentity:
    """Return this machine's processor, as far as this process may use it."""
    facts = cpu_facts()
    return DeviceIdentity(
        device="cpu",
        name=facts.name,
        units=facts.cores,
        memory_gib=round(facts.memory_bytes / _GIBIBYTE),
        driver="",
        torch=torch_release(),
    )


def gpu_identity(
    name: str, multiprocessors: int, memory_bytes: int, cuda_version: int
) -> DeviceIdentity:
    """Return a GPU's; torch and the driver say the same of it, so that either may be asked.

    `cuda_version` is the newest that the driver knows, such as 13000 for 13.0.
    """
    return DeviceIdentity(
        device="cuda",
        name=name,
        units=multiprocessors,
        memory_gib=round(memory_bytes / _GIBIBYTE),
        driver=f"{cuda_version // 1000}.{cuda_version % 1000 // 10}",
        torch=torch_release(),
    )


def first_gpu() -> DeviceIdentity | str:
    """Return the GPU that CUDA would offer first, or why there is none."""
    found = ask_driver()
    if not found.devices:
        return found.reason
    gpu = found.devices[0]
    return gpu_identity(gpu.name, gpu.sm_count, gpu.memory_bytes, found.version)


def identity_here(device: Literal["auto", "cuda", "cpu"]) -> DeviceIdentity | str:
    """Return a device of this machine, or why there is none; auto is a GPU if there is one."""
    gpu = cpu_identity() if device == "cpu" else first_gpu()
    return cpu_identity() if device == "auto" and isinstance(gpu, str) else gpu


def torch_release() -> str:
    """Return the release of the installed torch, without importing it; "" if there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = _RELEASE.match(version)
    return found.group() if found else version
