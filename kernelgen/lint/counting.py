"""What a problem's main case takes at least, for a person who has not graded anything yet.

Counted in a process of its own, which imports torch, on tensors that have shapes and no memory. It
reads a list of sources from standard input and writes a list of records to standard output.
"""

from __future__ import annotations

import subprocess
import sys
import warnings

import msgspec

from kernelgen.child_python import own_environment, python_command, reply_stream
from kernelgen.errors import KernelgenFault, in_one_line
from kernelgen.grading.timing.limit import Work, work_of
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.importing import run_text

_DEADLINE_S = 120.0


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
            python_command("kernelgen.lint.counting"),
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


def main() -> None:
    """Count in the process apart; write a Counted or an Uncounted for each source."""
    sources = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    with reply_stream() as out:
        out.write(msgspec.json.encode([_reply(source) for source in sources]))


def _reply(source: str) -> Counted | Uncounted:
    try:
        return count(source)
    except Exception as error:  # noqa: BLE001 (a problem's code may fail in any way)
        return Uncounted(reason=in_one_line(error))


def count(source: str) -> Counted:
    """Return what one call takes; raises whatever the source raises.

    Args:
        source: Python text that defines Model, get_inputs and get_init_inputs.
    """
    import torch

    from kernelgen.grading.oracle.flops import products_of
    from kernelgen.grading.wire.module_state import state_of
    from kernelgen.grading.wire.transport import deposit
    from kernelgen.grading.wire.values import tensors_of

    module = run_text("reference", source, "<reference>")
    with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = list(module.get_inputs())
        model = module.Model(*module.get_init_inputs())
        products = products_of(model, inputs)
        outputs = model(*inputs)
    state = [tensor for _, tensor in state_of(model)]
    read = deposit(inputs, None).total_bytes + deposit(state, None).total_bytes
    return Counted(
        minimal_bytes=read + sum(tensor.nbytes for tensor in tensors_of(outputs)),
        flops=products.flops,
        operand_bits=products.operand_bits,
    )
