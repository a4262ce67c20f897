"""What a problem's main case takes at least, for a person who has not graded anything yet."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from kernelgen.child_python import own_environment, start_code
from kernelgen.errors import KernelgenFault
from kernelgen.grading.timing.limit import Work, work_of
from kernelgen.problem.record import Device, Problem

_DEADLINE_S = 120.0
_START = start_code("kernelgen.lint.count_probe", "main()")


class Counted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a reference takes, counted on no data.

    Attributes:
        minimal_bytes: inputs, parameters and outputs once each.
        flops: operations of its matrix products, a multiply and an add counted as two.
        operand_bits: significant bits of the narrowest float among inputs and parameters.
    """

    minimal_bytes: int
    flops: int
    operand_bits: int


class Uncounted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why a reference cannot be counted without running it."""

    reason: str


def count_apart(problem: Problem, devices: tuple[Device, ...]) -> tuple[Work | Uncounted, ...]:
    """Count what a problem's main case takes at its sizes for some devices, in their order.

    The problem's code is run, on no data. Takes as long as importing torch does.

    Raises:
        KernelgenFault: the process that counts does not answer.
    """
    main = problem.all_cases()[0]
    sources = [problem.reference_source(main, device) for device in devices]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _START],
            input=msgspec.json.encode(sources),
            env=own_environment(),
            capture_output=True,
            check=True,
            timeout=_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        raise KernelgenFault(f"counting did not end within {_DEADLINE_S:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {error.returncode}"
        raise KernelgenFault(f"counting failed: {why}") from error
    replies: list[Counted | Uncounted] = msgspec.json.decode(
        done.stdout, type=list[Counted | Uncounted]
    )
    return tuple(
        reply if isinstance(reply, Uncounted) else work_of(reply, problem, device)
        for reply, device in zip(replies, devices, strict=True)
    )
