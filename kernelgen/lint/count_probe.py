"""Count what a reference takes, in a process of its own, which imports torch; see counting.py.

Reads a list of sources from standard input and writes a list of records to standard output. Nothing
is computed: tensors have shapes and no memory.
"""

from __future__ import annotations

import os
import sys
import types
import warnings

import msgspec
import torch

from kernelgen.grading.oracle.flops import products_of
from kernelgen.grading.wire.module_state import state_of
from kernelgen.grading.wire.transport import deposit, packed_bytes
from kernelgen.grading.wire.values import tensors_of
from kernelgen.lint.counting import Counted, Uncounted


def main() -> None:
    """Count, and write a list with a Counted or an Uncounted for each source."""
    sources = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    # What the problem's code prints goes to where a person reads.
    out = os.dup(1)
    os.dup2(2, 1)
    replies = [_reply(source) for source in sources]
    with os.fdopen(out, "wb") as file:
        file.write(msgspec.json.encode(replies))
    sys.stderr.flush()
    # Past the interpreter's own ending, which takes torch most of a second.
    os._exit(0)


def _reply(source: str) -> Counted | Uncounted:
    try:
        return count(source)
    except Exception as error:  # noqa: BLE001 (a problem's code may fail in any way)
        first_line = next(iter(str(error).splitlines()), "")
        return Uncounted(reason=f"{type(error).__name__}: {first_line}")


def count(source: str) -> Counted:
    """Return what one call takes; raises whatever the source raises.

    Args:
        source: Python text that defines Model, get_inputs and get_init_inputs.
    """
    module = types.ModuleType("reference")
    exec(compile(source, "<reference>", "exec"), module.__dict__)  # noqa: S102
    with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = list(module.get_inputs())
        model = module.Model(*module.get_init_inputs())
        products = products_of(model, inputs)
        outputs = model(*inputs)
    state = [tensor for _, tensor in state_of(model)]
    read = deposit(inputs, None).total_bytes + deposit(state, None).total_bytes
    return Counted(
        minimal_bytes=read + packed_bytes(tensors_of(outputs)),
        flops=products.flops,
        operand_bits=products.operand_bits,
    )
