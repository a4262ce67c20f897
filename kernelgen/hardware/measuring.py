"""Have a device's rates measured in a process of its own: this one imports no torch.

That process writes records to the standard output that it was started with, one a line.
"""

import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import IO, Literal

import msgspec

from kernelgen.child_python import own_environment, reply_stream, start_code
from kernelgen.errors import KernelgenFault
from kernelgen.hardware.calibration import Calibration
from kernelgen.hardware.device import usable_cores

# Measuring takes seconds, and torch's import on a slow disk a minute.
_DEADLINE_S = 300.0
_LAST_WORDS_BYTES = 4096
_START = start_code("kernelgen.hardware.measuring", "main(sys.argv[1])")
_CALLED = {"cuda": "the GPU", "cpu": "the CPU"}


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


def measure_apart(
    device: Literal["cuda", "cpu"],
    phase: Callable[[str], None],
    *,
    start: str = _START,
    deadline_s: float = _DEADLINE_S,
) -> Calibration:
    """Measure a device's rates; takes a few seconds.

    Of several GPUs it is the first that CUDA offers.

    Raises:
        KernelgenFault: torch is not there or finds no device, memory ran out, or the process
            failed; the message is one line.
    """
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            [sys.executable, "-c", start, device],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            env=own_environment(),
        ) as process,
    ):
        alarm = threading.Timer(deadline_s, process.kill)
        try:
            alarm.start()
            assert process.stdout is not None
            end = _listen(process.stdout, phase)
            code = process.wait()
        finally:
            # After ^C as well: its result is no longer wanted.
            alarm.cancel()
            process.kill()
        if isinstance(end, Measured):
            return end.calibration
        if isinstance(end, Impossible):
            raise KernelgenFault(f"{_CALLED[device]} cannot be measured: {end.reason}")
        why = f"{_last_words(words)} (exit code {code})"
        raise KernelgenFault(f"measuring {_CALLED[device]} failed: {why}")


def _listen(stdout: IO[bytes], phase: Callable[[str], None]) -> Measured | Impossible | None:
    """Return how it ended, or None if the process never said."""
    for raw in stdout:
        line: Line = msgspec.json.decode(raw, type=Line)
        if not isinstance(line, Phase):
            return line
        phase(line.text)
    return None


def _last_words(words: IO[bytes]) -> str:
    size = words.seek(0, os.SEEK_END)
    words.seek(max(0, size - _LAST_WORDS_BYTES))
    lines = words.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def main(device: Literal["cuda", "cpu"]) -> None:
    """Measure and report, in the process apart; an unforeseen error ends it with its trace."""
    warnings.simplefilter("ignore")
    with reply_stream() as out:

        def tell(line: Line) -> None:
            out.write(msgspec.json.encode(line) + b"\n")
            out.flush()

        tell(_measured(device, lambda text: tell(Phase(text=text))))


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
