"""What a template computes of a problem, if its inputs have names that no rendered file has."""

import contextlib
import re

from kernelgen.planning.capture import NoGraphError, graph_of
from kernelgen.planning.naming import CPP_WORDS
from kernelgen.planning.recognition.forms import Form, MatrixProduct
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
# The same, and what forward assigns before it comes to these inputs.
_TAKEN_IN_PRODUCTS = CPP_WORDS | frozenset(
    """
    Arguments Halves Operand Tile a a_batch a_depth a_row aligned arguments b b_batch b_depth b_row
    batches bias ceil_div columns cudaError_t cudaStream_t depth fast finish general halves_a
    halves_b hopper int64_t kept_b launch left multiply multiprocessors out position prepared
    product product_launch product_run ptx right rows split stream sum sums takes threads value
    workspace
    """.split()  # noqa: SIM905
)


def recognised(problem: Problem, case: Case, device: Device) -> Form | None:
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
    taken = _TAKEN_IN_PRODUCTS if isinstance(form, MatrixProduct) else _TAKEN_IN_NORMS
    # Others may be macros, or are no names in C++; those of layers may be any text.
    plain = all(re.fullmatch(r"[a-z]\w*|[A-Z]", name, re.ASCII) for name in form.operands)
    layers = [getattr(form, name, "") or "x" for name in ("layer", "linear")]
    plain = plain and all(map(str.isidentifier, layers))
    return form if plain and taken.isdisjoint(form.operands) else None
