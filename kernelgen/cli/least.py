"""What a problem takes at least, and how long that is on this machine; a part of `show`."""

from datetime import datetime, timezone

import click

from kernelgen.build.toolchain import cache_folder
from kernelgen.grading.timing.limit import Work, limit_of
from kernelgen.hardware.calibration import age_of, look_up
from kernelgen.hardware.device import first_gpu
from kernelgen.hardware.identity import DeviceIdentity, cpu_identity, gpu_identity
from kernelgen.lint.counting import Uncounted, count_apart
from kernelgen.problem.record import Device, Problem
from kernelgen.report.printable import printable

_DEVICES: tuple[tuple[Device, str], ...] = (("cuda", "on a GPU"), ("cpu", "on a CPU"))
_NOT_CALIBRATED = "not known: `kernelgen calibrate{}` measures it"


def show_least(problem: Problem) -> None:
    """Print bytes and operations at the sizes for a GPU and for a CPU, and the limits.

    Raises:
        KernelgenFault: torch is not there, or the counting failed.
    """
    counted = count_apart(problem, tuple(device for device, _ in _DEVICES))
    for (device, heading), work in zip(_DEVICES, counted, strict=True):
        if isinstance(work, Uncounted):
            reason = f"cannot be counted without running it: {work.reason}"
            click.echo(f"  {heading:<18} {printable(reason)}")
            continue
        rows = (
            (heading, f"{_amount(work.minimal_bytes, 'bytes', declared=work.bytes_declared)}"),
            ("", f"{_amount(work.flops, 'flops', declared=work.flops_declared)}"),
            ("", f"limit: {_limit(work, device)}"),
        )
        for name, text in rows:
            click.echo(f"  {name:<18} {text}")


def _amount(count: int, unit: str, *, declared: bool) -> str:
    return f"{count} {unit}, {'declared' if declared else 'counted'}"


def _limit(work: Work, device: Device) -> str:
    identity = _present(device)
    if isinstance(identity, str):
        return f"not known: {identity}"
    cached = look_up(cache_folder(), identity)
    if cached.calibration is None:
        found = "" if not cached.warning else f" ({printable(cached.warning)})"
        return _NOT_CALIBRATED.format(" --device cpu" if device == "cpu" else "") + found
    # A time of 1 ms: only the limit is of interest.
    limit = limit_of(1.0, work, cached.calibration)
    if limit is None:
        return "none: nothing has to be moved"
    by = f"{limit.copy_gbps:.4g} GB/s" if limit.bound == "memory" else ""
    if limit.flops_per_s is not None and limit.bound == "arithmetic":
        by = f"{limit.flops_per_s / 1e12:.4g} TFLOP/s, {limit.rate}"
    age = age_of(cached.calibration, datetime.now(timezone.utc))
    return f"{limit.limit_ms:.4g} ms on {printable(identity.name)} ({by}; measured {age})"


def _present(device: Device) -> DeviceIdentity | str:
    """Return this machine's device, or why there is none."""
    if device == "cpu":
        return cpu_identity()
    gpu = first_gpu()
    return gpu if isinstance(gpu, str) else gpu_identity(gpu)
