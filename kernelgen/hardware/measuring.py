"""Have a device's rates measured in a process of its own: this one imports no torch.

That process tells on standard error what it measures, and writes one record to standard output.
"""

import subprocess
import sys
import warnings
from typing import Literal

import msgspec

from kernelgen.child_python import own_environment, python_command, reply_stream, said_by
from kernelgen.errors import KernelgenFault
from kernelgen.hardware.calibration import Calibration
from kernelgen.hardware.device import usable_cores

# Measuring takes seconds, and torch's import on a slow disk a minute.
_DEADLINE_S = 300.0
_CALLED = {"cuda": "the GPU", "cpu": "the CPU"}


# All rates, or why nothing could be measured, and what to do.
Reply = Calibration | str


def measure_apart(device: Literal["cuda", "cpu"], *, quiet: bool = False) -> Calibration:
    """Measure a device's rates, and say on stderr what is being measured; takes a few seconds.

    Of several GPUs it is the first that CUDA offers.

    Raises:
        KernelgenFault: torch is not there or finds no device, memory ran out, or the process
            failed, and has said on stderr why; the message is one line.
    """
    command = python_command("kernelgen.hardware.measuring", device, *["--quiet"] * quiet)
    try:
        said = said_by(command, _DEADLINE_S, env=own_environment())
    except subprocess.TimeoutExpired:
        raise KernelgenFault(
            f"measuring {_CALLED[device]} did not end within {_DEADLINE_S:g} s"
        ) from None
    except subprocess.CalledProcessError as error:
        raise KernelgenFault(
            f"measuring {_CALLED[device]} failed with exit code {error.returncode}; what its "
            "process printed says why"
        ) from error
    reply: Reply = msgspec.json.decode(said, type=Reply)
    if isinstance(reply, str):
        raise KernelgenFault(f"{_CALLED[device]} cannot be measured: {reply}")
    return reply


def main() -> None:
    """Measure and reply, in the process apart; an unforeseen error ends it with its trace."""
    warnings.simplefilter("ignore")
    device, *quiet = sys.argv[1:]
    with reply_stream() as out:
        out.write(msgspec.json.encode(_measured(device, quiet=bool(quiet))))


def _measured(device: str, *, quiet: bool) -> Reply:
    import torch

    from kernelgen.hardware import rates

    if device == "cuda" and not torch.cuda.is_available():
        return "torch finds no CUDA device; install a CUDA build of torch that this driver supports"
    torch.set_num_threads(usable_cores())

    def phase(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"measuring {text}\n")
            sys.stderr.flush()

    try:
        return rates.measure(device, rates.THOROUGH[device], rates.ALL_FORMATS, phase)
    except (MemoryError, torch.OutOfMemoryError) as error:
        first_line = next(iter(str(error).splitlines()), "")
        return f"memory ran out: {first_line}; end what else uses the device"
