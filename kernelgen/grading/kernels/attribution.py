"""Attributes the kernels of traced calls to their owners, with their shares of the time."""

import re
from collections.abc import Sequence

import msgspec

from kernelgen.grading.kernels import names
from kernelgen.grading.verdict import OWN_KERNELS, KernelOwner, KernelUse
from kernelgen.grading.wire.trace import Trace, Work
from kernelgen.solution.declared_kernels import DeclaredKernels

# A kernel that is not known to be the candidate's own is somebody else's.
LIBRARIES: tuple[KernelOwner, ...] = ("cublas", "cudnn", "aten", "nccl", "inductor", "unknown")
REST = "its own code, and Python"
# Shorter words could spell any name.
_LEAST_WORD = 2
_LONGEST_SPELLED = 200
# Beside numbers and words of the text; torch's jiterator adds the longer ones.
_PUT_BETWEEN = frozenset({"_", "_vectorized", "_kernel"})


class AttributedWork(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, copy or operator, and whose it is.

    Attributes:
        computes: it does more than to fill or copy.
    """

    work: Work
    owner: KernelOwner
    name: str
    computes: bool


def attribute(
    trace: Trace, declared: DeclaredKernels, reference: Trace | None = None
) -> tuple[AttributedWork, ...]:
    """Say of all that ran in one call whose it is, by the rules of docs/own-kernels.md."""
    foreign = frozenset(work.name for work in reference.works) if reference else frozenset()
    return tuple(_attributed(work, declared, foreign) for work in trace.works)


def disputed(
    trace: Trace, declared: DeclaredKernels, reference: Trace | None = None
) -> tuple[str, ...]:
    """Return the candidate's kernels that have names as a library's have."""
    return tuple(
        found.name
        for found in attribute(trace, declared, reference)
        if found.work.kind == "kernel"
        and found.owner in OWN_KERNELS
        and names.library_of(names.parse_kernel_name(found.work.name)) is not None
    )


def kernel_uses(
    traces: Sequence[Trace], declared: DeclaredKernels, *, on_gpu: bool, reference: Trace | None
) -> tuple[KernelUse, ...]:
    """Return what ran in traced calls of one case, per call, with the largest share first."""
    times: dict[tuple[str, KernelOwner], list[tuple[int, float]]] = {}
    for trace in traces:
        for found in attribute(trace, declared, reference):
            one = (found.work.count, found.work.time_us)
            times.setdefault((found.name, found.owner), []).append(one)
        rest_us = max(0.0, trace.call_us - trace.busy_us)
        if not on_gpu:
            times.setdefault((REST, "candidate"), []).append((1, rest_us))
    total_us = sum(time_us for ran in times.values() for _, time_us in ran)
    uses = [
        KernelUse(
            name=name,
            owner=owner,
            calls=sum(count for count, _ in ran) / len(traces),
            share=sum(time_us for _, time_us in ran) / total_us if total_us else 0.0,
            time_us=sum(time_us for _, time_us in ran) / len(traces),
        )
        for (name, owner), ran in times.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.share, use.name)))


def _attributed(work: Work, declared: DeclaredKernels, foreign: frozenset[str]) -> AttributedWork:
    if work.kind == "copy":
        return AttributedWork(work=work, owner="copy", name=work.name[:60], computes=False)
    if work.kind == "compiled":
        return AttributedWork(work=work, owner="inductor", name=work.name[:60], computes=True)
    if work.kind == "operator":
        owner: KernelOwner = "aten" if names.is_torch_operator(work.name) else "candidate"
        return AttributedWork(
            work=work, owner=owner, name=work.name[:96], computes=names.operator_computes(work.name)
        )
    name = names.parse_kernel_name(work.name)
    owner = (names.library_of(name) or "aten") if name.full in foreign else _owner(name, declared)
    moves = owner == "aten" and names.only_moves(name.full)
    return AttributedWork(work=work, owner=owner, name=name.shown, computes=not moves)


def _owner(name: names.KernelName, declared: DeclaredKernels) -> KernelOwner:
    library = names.library_of(name)
    if library == "aten" and declared.extends_aten and _fills_template(name, declared):
        return "candidate"
    if name.base in declared.triton or name.base.partition("_0")[0] in declared.triton:
        return "triton"
    own = name.base in declared.cuda and _lies_in_own_namespaces(name, declared)
    made = own or name.path in declared.compiled
    if made and not (
        names.surely_a_library_s(name) and names.filled_by_a_library(name, declared.words)
    ):
        return "candidate"
    if library is not None:
        return library
    from_header = name.path.partition("::")[0] in declared.libraries
    return "candidate" if from_header or _is_put_together(name, declared) else "unknown"


def _lies_in_own_namespaces(name: names.KernelName, declared: DeclaredKernels) -> bool:
    return declared.namespaces.issuperset(name.path.split("::")[:-1])


def _is_put_together(name: names.KernelName, declared: DeclaredKernels) -> bool:
    """Whether a name consists of the text's words: a macro made it, or a language in Python."""
    if not _lies_in_own_namespaces(name, declared):
        return False
    around = f"_{name.base}_"
    if any(f"_{own}_" in around for own in declared.triton if len(own) > _LEAST_WORD):
        return True
    return name.base in declared.words or _is_spelled(name.base, declared.words)


def _is_spelled(name: str, words: frozenset[str]) -> bool:
    reached = [True]
    for end in range(1, len(name[:_LONGEST_SPELLED]) + 1):
        parts = (name[start:end] for start in range(end) if reached[start])
        reached.append(any(_is_part(part, words) for part in parts))
    return reached[-1] and len(reached) > len(name)


def _is_part(part: str, words: frozenset[str]) -> bool:
    return part in _PUT_BETWEEN or part.isdigit() or (len(part) >= _LEAST_WORD and part in words)


def _fills_template(name: names.KernelName, declared: DeclaredKernels) -> bool:
    """Whether a kernel template of ATen's was given a lambda of a function in the text."""
    around_lambdas = re.findall(r"(?<![\w:])(\w+)\([^<>{}]*\)::\{lambda", name.arguments)
    return any(function in declared.words for function in around_lambdas)
