"""Whether a candidate's call runs all of the library's kernels that the reference runs.

Most kernels of ATen's say by their names what they compute. A product, a convolution or a
normalisation does not: it may add a bias, or leave that to somebody else's kernel under the same
name. A reference with one of these is never said to be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelgen.grading.kernels.attribution import AttributedWork
from kernelgen.grading.kernels.names import library_of, only_moves, parse_kernel_name
from kernelgen.grading.wire.trace import Trace, Work

# Kernels of ATen's that take a weight or a bias, or none.
_TAKES_PARAMETERS = re.compile(r"conv|norm|linear", re.IGNORECASE)


def may_repeat(works: Sequence[AttributedWork]) -> bool:
    """Whether a call runs a computing kernel of ATen's, as every repetition does."""
    return any(work.owner == "aten" and work.computes for work in works)


def repeated_kernels(works: Sequence[AttributedWork], reference: Trace) -> tuple[str, ...]:
    """Return the names of the reference's computing kernels if the call runs them all, else ().

    Each must run at least as often, in at least as many blocks and threads: the same kernel on a
    part of the elements, beside own kernels that do the rest, is no repetition.

    Args:
        works: of the call, on a GPU.
        reference: a trace of the reference with inputs of the same sizes.
    """
    done = {found.work.name: found.work for found in works if found.work.kind == "kernel"}
    asked = [work for work in reference.works if work.kind == "kernel" and _computes(work)]
    if not asked or any(_may_hide_more(work) for work in asked):
        return ()
    if not all(work.name in done and _covers(done[work.name], work) for work in asked):
        return ()
    return tuple(parse_kernel_name(work.name).shown for work in asked)


def _computes(work: Work) -> bool:
    return not only_moves(work.name)


def _may_hide_more(work: Work) -> bool:
    name = parse_kernel_name(work.name)
    return library_of(name) != "aten" or _TAKES_PARAMETERS.search(name.base) is not None


def _covers(done: Work, asked: Work) -> bool:
    return (
        done.count >= asked.count
        and done.blocks >= asked.blocks
        and done.threads >= asked.threads
        and done.all_threads >= asked.all_threads
    )
