"""Measure a device's rates in a process of its own, which imports torch; run by measuring.py.

Records go to the standard output that the process was started with, one a line. Whatever torch or
a library prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Literal

import msgspec

from kernelgen.hardware.calibration import Calibration
from kernelgen.hardware.device import usable_cores


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is measured next."""

    text: str


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The end: all rates."""

    calibration: Calibration


class Impossible(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The end: why nothing could be measured, and what to do."""

    reason: str


Line = Phase | Measured | Impossible


def main(device: Literal["cuda", "cpu"]) -> None:
    """Measure and report; an error that is not foreseen ends the process with its trace."""
    warnings.simplefilter("ignore")
    # The records' own way out, and everything else to where a person reads.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)

        def tell(line: Line) -> None:
            out.write(msgspec.json.encode(line) + b"\n")
            out.flush()

        tell(_measured(device, lambda text: tell(Phase(text=text))))
    # Past the interpreter's own ending, which takes torch most of a second.
    sys.stderr.flush()
    os._exit(0)


def _measured(device: Literal["cuda", "cpu"], phase: Callable[[str], None]) -> Line:
    import torch

    from kernelgen.hardware import rates

    if device == "cuda" and not torch.cuda.is_available():
        reason = (
            "torch finds no CUDA device; install a CUDA build of torch that this driver supports"
        )
        return Impossible(reason=reason)
    torch.set_num_threads(usable_cores())
    try:
        found = rates.measure(device, rates.THOROUGH[device], rates.ALL_FORMATS, phase)
    except (MemoryError, torch.OutOfMemoryError) as error:
        first_line = next(iter(str(error).splitlines()), "")
        return Impossible(reason=f"memory ran out: {first_line}; end what else uses the device")
    return Measured(calibration=found)
