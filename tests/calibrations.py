"""Calibrations that tests invent."""

from datetime import datetime, timezone
from typing import Literal

from kernelgen.hardware.calibration import Calibration, MatrixFormat, MatrixRate, Spread
from kernelgen.hardware.identity import DeviceIdentity

H200 = DeviceIdentity(
    device="cuda", name="NVIDIA H200", units=132, memory_gib=140, driver="13.0", torch="2.11"
)
PLAIN_CPU = DeviceIdentity(
    device="cpu", name="Some CPU", units=2, memory_gib=24, driver="", torch="2.11"
)
# Close to what an H200 does.
RATES: dict[MatrixFormat, float] = {"fp32": 50e12, "tf32": 400e12, "bf16": 780e12, "fp16": 750e12}


def steady(rate: float) -> Spread:
    """Return a rate that never varied."""
    return Spread(median=rate, best=rate, count=5)


def calibration(
    device: Literal["cuda", "cpu"] = "cuda",
    *,
    copy_gbps: float = 4000.0,
    rates: dict[MatrixFormat, float] | None = None,
) -> Calibration:
    """Return the calibration of an invented device."""
    given = RATES if rates is None else rates
    return Calibration(
        device=H200 if device == "cuda" else PLAIN_CPU,
        measured=datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc),
        copy_gbps=steady(copy_gbps),
        copy_bytes=1 << 30,
        write_gbps=steady(copy_gbps),
        matrix_size=8192,
        matrix=tuple(
            MatrixRate(format=form, flops_per_s=steady(rate)) for form, rate in given.items()
        ),
    )
