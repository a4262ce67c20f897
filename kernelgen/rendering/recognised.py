"""What a template computes of a problem, if its inputs have names that no rendered file has."""

import contextlib
import re

from kernelgen.planning.capture import NoGraphError, graph_of
from kernelgen.planning.naming import CPP_WORDS
from kernelgen.planning.recognition.forms import SegmentNorm
from kernelgen.planning.recognition.recognise import form_of
from kernelgen.problem.record import Case, Device, Problem

# What the templates' own forward calls its locals and modules, and what it needs of Python's own;
# an input may not have these names.
_RESERVED = frozenset(
    """
    F ValueError affine bias channels ctypes functools groups h hashlib inner len length map nn
    norm out segments shape sizes str tensors torch tuple weight
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# What the kernels have names for beside an epilogue's inputs.
_TAKEN_IN_NORMS = CPP_WORDS | frozenset(
    """
    a beside eps fmaf gelu i j normalised position relu s sigmoid silu start stream tanh threads
    value values within workspace x
    """.split()  # noqa: SIM905
)


def recognised(problem: Problem, case: Case, device: Device) -> SegmentNorm | None:
    """Return what a template computes if that is all that a case's forward does, else None.

    None is also the answer where an input is called like what the rendered file has a name for.

    Raises:
        ProblemError: the problem's code fails.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    if problem.eval_mode:
        return None
    form = None
    with contextlib.suppress(NoGraphError):
        form = form_of(graph_of(problem, case, device))
    if form is None or any(name in _RESERVED or name.startswith("_") for name in form.inputs):
        return None
    # Others may be macros, or are no names in C++; those of layers may be any text.
    plain = all(re.fullmatch(r"[a-z]\w*|[A-Z]", name, re.ASCII) for name in form.operands)
    plain = plain and (form.layer or "x").isidentifier()
    return form if plain and _TAKEN_IN_NORMS.isdisjoint(form.operands) else None
