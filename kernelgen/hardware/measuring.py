"""Have a device's rates measured in a process of its own: this one imports no torch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import IO, Literal

import msgspec

from kernelgen.child_python import own_environment, start_code
from kernelgen.errors import KernelgenFault
from kernelgen.hardware.calibration import Calibration
from kernelgen.hardware.rate_probe import Impossible, Line, Measured, Phase

# Measuring takes seconds, and torch's import on a slow disk a minute.
_DEADLINE_S = 300.0
_LAST_WORDS_BYTES = 4096
_START = start_code("kernelgen.hardware.rate_probe", "main(sys.argv[1])")
_CALLED = {"cuda": "the GPU", "cpu": "the CPU"}


def measure_apart(
    device: Literal["cuda", "cpu"],
    phase: Callable[[str], None],
    *,
    start: str = _START,
    deadline_s: float = _DEADLINE_S,
) -> Calibration:
    """Measure a device's rates; takes a few seconds.

    Args:
        device: which; of several GPUs the first that CUDA offers.
        phase: told what is measured next.
        start: the process's Python code.
        deadline_s: after which it is ended.

    Raises:
        KernelgenFault: torch is not there or finds no device, memory ran out, or the process
            failed; the message is one line.
    """
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            [sys.executable, "-c", start, device],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=words,
            env=own_environment(),
        )
        alarm = threading.Timer(deadline_s, process.kill)
        try:
            alarm.start()
            assert process.stdout is not None
            end = _listen(process.stdout, phase)
            code = process.wait()
        finally:
            # After ^C as well: what still measures would be for nobody.
            alarm.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
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
