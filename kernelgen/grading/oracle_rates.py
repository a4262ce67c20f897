"""The oracle's part in a limit: which device it is, and its rates where none are cached."""

from __future__ import annotations

from kernelgen.grading import messages as m
from kernelgen.grading.failure import is_out_of_memory
from kernelgen.hardware import rates
from kernelgen.hardware.calibration import MatrixFormat


def identify(device: str) -> m.DeviceIdentified:
    """Return which device it is."""
    return m.DeviceIdentified(identity=rates.identity_of(device))


def measure_quickly(device: str, formats: tuple[MatrixFormat, ...]) -> m.RatesMeasured:
    """Measure in a few tenths of a second; a lack of memory is no reason to lose a verdict."""
    try:
        return m.RatesMeasured(calibration=rates.measure(device, rates.QUICK[device], formats))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        first_line = next(iter(str(error).splitlines()), "")
        return m.RatesMeasured(calibration=None, reason=f"memory ran out: {first_line}")
